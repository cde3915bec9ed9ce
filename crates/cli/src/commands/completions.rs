//! `daybook completions`: completions of commands and options for a shell.

use std::io::{self, Write};

use clap::{Args, Command};
use clap_complete::Shell;

use crate::operator::{Exit, OperatorError};

/// Print the completions of commands and options for a shell.
///
/// bash: `source <(daybook completions bash)` in `~/.bashrc`. zsh: `source <(daybook completions zsh)` in `~/.zshrc`, after
/// `compinit`. fish: `daybook completions fish > ~/.config/fish/completions/daybook.fish`.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct CompletionsArgs {
    /// The shell.
    pub(super) shell: Shell,
}

/// Prints the completions of `command`.
pub(super) fn print(args: CompletionsArgs, mut command: Command) -> Result<Exit, OperatorError> {
    let name = command.get_name().to_owned();
    // To a buffer first: the generator panics when it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, name, &mut script);
    Ok(Exit::of_output(io::stdout().write_all(&script))?)
}
