//! `daybook schemas`: prints the description of the messages for their consumers, or what a release changes for them. `daybook
//! openapi`: prints the OpenAPI document of the API, for clients and for the copy in `docs/openapi.json`. `daybook
//! completions`: prints the completions for a shell.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Command};
use clap_complete::Shell;
use daybook_api_documents::{asyncapi, breaks, json_schema};
use daybook_decider::Registry;
use daybook_local_stack::Project;
use serde_json::Value;

use crate::operator::{Ended, Exit, OperatorError};

/// Print the JSON Schema of each message on the bus; `docs/messages.schema.json` is a copy.
#[derive(Clone, Debug, Args)]
pub struct SchemasArgs {
    /// Print an AsyncAPI 3.0 document of the bus instead; `docs/asyncapi.json` is a copy.
    #[arg(long)]
    asyncapi: bool,
    /// Print what breaks a consumer since an earlier release instead, and end with 1 if there is something. The file is what
    /// `daybook schemas` of that release printed.
    #[arg(long, value_name = "FILE", conflicts_with = "asyncapi")]
    since: Option<PathBuf>,
}

pub fn json_schema_text(registry: &Registry) -> String {
    format!("{:#}\n", json_schema(registry))
}

pub fn asyncapi_text(registry: &Registry) -> String {
    format!("{:#}\n", asyncapi(registry))
}

pub(super) fn run(args: &SchemasArgs, registry: &Registry) -> Ended {
    let (text, exit) = match &args.since {
        Some(file) => changes(file, registry)?,
        None if args.asyncapi => (asyncapi_text(registry), Exit::Clean),
        None => (json_schema_text(registry), Exit::Clean),
    };
    Ok(match Exit::of_output(io::stdout().write_all(text.as_bytes()))? {
        Exit::Clean => exit,
        unread => unread,
    })
}

fn changes(file: &Path, registry: &Registry) -> Result<(String, Exit), OperatorError> {
    let doing = || format!("cannot read the schemas of the earlier release in {}", file.display());
    let text = fs::read_to_string(file).map_err(|source| OperatorError::File { doing: doing(), source })?;
    let earlier: Value = serde_json::from_str(&text).unwrap_or_default();
    if !earlier["oneOf"].is_array() {
        let doing = doing();
        return Err(OperatorError::Usage(format!("{doing}: it is not what `daybook schemas` prints")));
    }
    let found = breaks(&earlier, &json_schema(registry));
    if found.is_empty() {
        return Ok(("No change breaks a consumer.\n".to_owned(), Exit::Clean));
    }
    Ok((found.iter().map(|found| format!("{found}\n")).collect(), Exit::Findings))
}

pub fn openapi_text(project: Project) -> Result<String, OperatorError> {
    let projections = (project.projections)()?;
    Ok(format!("{:#}\n", daybook_command_handler::openapi::document(&(project.aggregates)()?, &projections)))
}

pub(super) fn print_openapi(project: Project) -> Ended {
    Ok(Exit::of_output(io::stdout().write_all(openapi_text(project)?.as_bytes()))?)
}

/// Print the completions of commands and options for a shell.
///
/// bash: `source <(daybook completions bash)` in `~/.bashrc`. zsh: `source <(daybook completions zsh)` in `~/.zshrc`, after
/// `compinit`. fish: `daybook completions fish > ~/.config/fish/completions/daybook.fish`.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct CompletionsArgs {
    /// The shell.
    pub(super) shell: Shell,
}

pub(super) fn print_completions(args: CompletionsArgs, mut command: Command) -> Ended {
    let name = command.get_name().to_owned();
    // To a buffer first: the generator panics when it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, name, &mut script);
    Ok(Exit::of_output(io::stdout().write_all(&script))?)
}
