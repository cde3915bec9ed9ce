//! The commands of a page's shell blocks.

use std::process::Command;

/// The commands of a page, in its order. In a `console` block, a command follows `$ `, and what it prints follows the
/// command. All lines of an `sh` block are commands.
pub(crate) fn commands(page: &str) -> Result<Vec<String>, String> {
    let mut commands = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let indentation = line.len() - line.trim_start().len();
        let shows_output = match line.trim_start() {
            "```console" => true,
            "```sh" | "```bash" | "```shell" | "```zsh" => false,
            _ => continue,
        };
        let block: Vec<_> = lines
            .by_ref()
            .take_while(|line| line.trim_start() != "```")
            .map(|line| line.get(indentation..).unwrap_or_default())
            .collect();
        commands.extend(of_block(&block, shows_output)?);
    }
    Ok(commands)
}

fn of_block(block: &[&str], shows_output: bool) -> Result<Vec<String>, String> {
    let mut commands = Vec::new();
    let mut lines = block.iter();
    while let Some(line) = lines.next() {
        let begin = if shows_output { line.strip_prefix("$ ") } else { Some(*line).filter(|line| !line.is_empty()) };
        let Some(begin) = begin else { continue };
        let mut command = begin.to_owned();
        while !is_complete(&command) {
            let Some(line) = lines.next() else { return Err(format!("an incomplete command: {command}")) };
            command = format!("{command}\n{line}");
        }
        commands.push(command);
    }
    Ok(commands)
}

/// Whether a shell would run the lines instead of waiting for another one.
fn is_complete(command: &str) -> bool {
    let parsed = Command::new("bash").args(["--norc", "--noprofile", "-n", "-c", command]).output();
    !command.ends_with('\\') && parsed.is_ok_and(|parsed| parsed.status.success() && parsed.stderr.is_empty())
}
