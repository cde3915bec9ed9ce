//! Every command in the documents can be parsed.

use std::path::Path;

use clap::Parser;
use clap::error::ErrorKind;
use daybook_cli::commands::DaybookArgs;

const OPERATOR_COMMANDS: [&str; 4] = ["verify", "dlq", "republish", "snapshot"];

/// The texts between backquotes, and the lines of code blocks.
fn commands(page: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
    let text = std::fs::read_to_string(path).unwrap();
    let spans = text.split('`').map(|span| span.split_whitespace().collect::<Vec<_>>().join(" "));
    let lines = text.lines().map(|line| line.trim().trim_start_matches("$ ").to_owned());
    let command = |text: &String| {
        let mut words = text.split(' ');
        words.next() == Some("daybook") && words.next().is_some_and(|name| OPERATOR_COMMANDS.contains(&name))
    };
    spans.chain(lines).filter(|text| !text.contains('`')).filter(command).collect()
}

#[test]
fn commands_in_the_documents_can_be_parsed() {
    let mut seen = 0;
    for page in ["README.md", "docs/operating.md", "docs/runbook.md"] {
        for command in commands(page) {
            let typed = command.split('#').next().unwrap().replace(['[', ']'], "");
            let typed = typed.replace("TIME", "2026-11-20T08:00:00Z");
            match DaybookArgs::try_parse_from(shlex::split(&typed).unwrap()) {
                Ok(_) => seen += 1,
                // The text only mentions the name of this command.
                Err(error) => assert!(
                    matches!(
                        error.kind(),
                        ErrorKind::MissingRequiredArgument
                            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
                            | ErrorKind::DisplayHelp
                    ),
                    "{page}: {command}: {error}"
                ),
            }
        }
    }
    assert!(seen > 15, "{seen}");
}
