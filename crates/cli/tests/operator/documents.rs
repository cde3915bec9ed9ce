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
    let tables = [("docs/operating.md", commands), ("its permissions", permissions)];
    for words in operator_commands() {
        let command = words.join(" ");
        for (name, text) in tables {
            let mut cells = text.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
            assert!(cells.any(|cell| cell.contains(&command)), "no table of {name} has `{command}`");
        }
    }
}

/// The README and the pages in `docs/`.
fn pages() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let pages = names.filter(|name| name.ends_with(".md")).map(|name| format!("docs/{name}"));
    pages.chain(["README.md".to_owned()]).collect()
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
    let (mut seen, mut errors) = (0, Vec::new());
    for page in pages() {
        for command in commands(&page) {
            let typed = command.split(['#', '|']).next().unwrap().replace(['[', ']'], "");
            let example = |word: String| match word.as_str() {
                "TIME" | "T" => "2026-11-20T08:00:00Z".to_owned(),
                "N" => "1".to_owned(),
                _ => word,
            };
            match DaybookArgs::try_parse_from(shlex::split(&typed).unwrap().into_iter().map(example)) {
                Ok(_) => seen += 1,
                // The text only mentions the name of this command.
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::MissingRequiredArgument
                            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
                            | ErrorKind::DisplayHelp
                    ) => {}
                Err(error) => errors.push(format!("{page}: {command}: {error}")),
            }
        }
    }
    assert!(errors.is_empty(), "{}", errors.join("\n"));
    assert!(seen > 15, "{seen}");
}
