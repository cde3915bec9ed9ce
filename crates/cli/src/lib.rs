//! The `daybook` command: the whole suite on one machine, and the operator's verbs for wherever it runs.
//!
//! In reading order:
//! - [`commands`]: the commands, one file each.
//! - [`dev`]: the local stack.
//! - [`operator`]: what the operator's verbs share: which stack, which aggregates, how fast, until when.
//! - `aws`: AWS configuration.

mod aws;
pub mod commands;
pub mod dev;
pub mod operator;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use self::operator::{Exit, OperateError, Operator};

/// Event sourcing on DynamoDB: the whole suite on one machine, and the operator's verbs.
#[derive(Debug, Parser)]
#[command(name = "daybook", version)]
pub struct Command {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    dev: dev::Options,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run everything on this machine: table, API, relay, snapshotter and bus (the default).
    Dev(dev::Options),
    /// Print the API's document, OpenAPI 3.1; `docs/openapi.json` is a copy.
    Openapi,
    #[command(flatten)]
    Operate(operator::Verb),
}

/// Why a command could not be carried out. The message is for the person who typed it.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The dev stack.
    #[error(transparent)]
    Dev(#[from] dev::DevError),
    /// An operator's verb.
    #[error(transparent)]
    Operate(#[from] OperateError),
}

impl CommandError {
    /// What the process ends with: 1 for the dev stack, 2 and 3 for the operator's verbs.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Dev(_) => ExitCode::FAILURE,
            Self::Operate(error) => ExitCode::from(error.exit_code()),
        }
    }
}

impl Command {
    /// Carries the command out.
    ///
    /// # Errors
    ///
    /// When it fails.
    pub async fn run(self) -> Result<Exit, CommandError> {
        match self.verb {
            Some(Verb::Dev(options)) => Ok(commands::dev::run(options).await?),
            Some(Verb::Openapi) => Ok(commands::openapi::print()?),
            None => Ok(commands::dev::run(self.dev).await?),
            Some(Verb::Operate(verb)) => Ok(verb.run(&mut Operator::of_process()?).await?),
        }
    }
}
