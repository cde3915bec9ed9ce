//! The `daybook` command: the whole suite on one machine, and the operator's verbs for wherever it runs.
//!
//! In reading order:
//! - [`dev`]: `daybook dev`.
//! - [`openapi`]: `daybook openapi`.
//! - [`operate`]: what the operator's verbs share: which stack, which aggregates, how fast, until when.
//! - [`verify`], [`dlq`], [`republish`], [`snapshot`]: these verbs.
//! - `aws`: AWS configuration.

mod aws;
pub mod dev;
pub mod dlq;
pub mod openapi;
pub mod operate;
pub mod republish;
pub mod snapshot;
pub mod verify;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use self::operate::{Exit, OperateError, Operator};

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
    Operate(operate::Verb),
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
            Some(Verb::Dev(options)) => Ok(dev::run(options).await?),
            Some(Verb::Openapi) => Ok(openapi::print()?),
            None => Ok(dev::run(self.dev).await?),
            Some(Verb::Operate(verb)) => Ok(verb.run(&mut Operator::of_process()?).await?),
        }
    }
}
