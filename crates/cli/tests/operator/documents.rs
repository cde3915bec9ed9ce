//! The documents and the command line agree: the documents list every operator command, and every command in them can be
//! parsed.

use std::path::Path;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use daybook_cli::commands::DaybookArgs;

/// The words of each operator command, such as `["dlq", "list"]`.
pub(crate) fn operator_commands() -> Vec<Vec<String>> {
    let daybook = DaybookArgs::command();
    let others = ["dev", "dev-functions", "openapi", "schemas", "completions", "new", "add", "upgrade"];
    let commands = daybook.get_subcommands().filter(|command| !others.contains(&command.get_name()));
    commands
        .flat_map(|command| {
            let name = command.get_name().to_owned();
            let mut nested = command.get_subcommands().map(|nested| nested.get_name().to_owned()).peekable();
            if nested.peek().is_none() {
                return vec![vec![name]];
            }
            nested.map(|nested| vec![name.clone(), nested]).collect()
        })
        .collect()
}

fn read(page: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page)).unwrap()
}

#[test]
fn documents_list_each_operator_command() {
    let operating = read("docs/operating.md");
    let (commands, permissions) = operating.split_once("### Permissions").unwrap();
    let readme = read("README.md");
    let tables = [("README.md", &*readme), ("docs/operating.md", commands), ("its permissions", permissions)];
    for words in operator_commands() {
        let command = words.join(" ");
        for (name, text) in tables {
            let mut cells = text.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
            assert!(cells.any(|cell| cell.contains(&command)), "no table of {name} has `{command}`");
        }
    }
}

/// The texts between backquotes, and the lines of code blocks.
fn commands(page: &str) -> Vec<String> {
    let text = read(page);
    let operator_commands = operator_commands();
    let spans = text.split('`').map(|span| span.split_whitespace().collect::<Vec<_>>().join(" "));
    let lines = text.lines().map(|line| line.trim().trim_start_matches("$ ").to_owned());
    let command = |text: &String| {
        let mut words = text.split(' ');
        words.next() == Some("daybook")
            && words.next().is_some_and(|name| operator_commands.iter().any(|words| words[0] == name))
    };
    spans.chain(lines).filter(|text| !text.contains('`')).filter(command).collect()
}

#[test]
fn commands_in_the_documents_can_be_parsed() {
    let mut seen = 0;
    for page in ["README.md", "docs/operating.md", "docs/runbook.md"] {
        for command in commands(page) {
            let typed = command.split(['#', '|']).next().unwrap().replace(['[', ']'], "");
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
