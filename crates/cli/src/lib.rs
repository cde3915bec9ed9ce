//! The `daybook` command: the whole suite on one machine.
//!
//! In reading order:
//! - [`dev`]: `daybook dev`.
//! - [`openapi`]: `daybook openapi`.

pub mod dev;
pub mod openapi;

use clap::{Parser, Subcommand};

/// Event sourcing on DynamoDB: the whole suite on one machine.
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
}

impl Command {
    /// Carries the command out.
    ///
    /// # Errors
    ///
    /// When it fails; the message is for the person who typed it.
    pub async fn run(self) -> Result<(), dev::DevError> {
        match self.verb {
            Some(Verb::Dev(options)) => dev::run(options).await,
            Some(Verb::Openapi) => openapi::print().map_err(Into::into),
            None => dev::run(self.dev).await,
        }
    }
}
