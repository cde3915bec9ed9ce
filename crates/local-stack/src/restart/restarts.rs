//! The binary that is built and started again after a change of its sources.

use std::env;
use std::path::PathBuf;

use clap::Args;

use super::build_command::BuildCommand;
use super::sources::Sources;
use crate::error::DevError;

/// Whether and how the functions are replaced after a change of their sources.
#[derive(Clone, Debug, Default, Args)]
pub struct RestartArgs {
    /// Keep the functions as they are. Default: after a change of a source file, `cargo run` builds them again and replaces
    /// them, and everything else goes on. A binary that was not started by `cargo run` never replaces them.
    #[arg(long)]
    pub no_restart: bool,
    /// Shell command that builds this binary after a change of a source file. Default: the `cargo build` for `cargo run`
    /// without --features, --target and --package.
    #[arg(long, value_name = "COMMAND", conflicts_with = "no_restart")]
    pub build_command: Option<String>,
}

/// A binary whose functions are replaced after a change of its sources.
#[derive(Clone, Debug)]
pub struct Restarts {
    /// This binary, which the build replaces.
    pub(super) binary: PathBuf,
    pub(super) sources: Sources,
    pub(super) build: BuildCommand,
    /// The collector that gets the traces.
    pub(super) collector: Option<String>,
}

impl RestartArgs {
    /// The binary of this process, if its functions are to be replaced. `collector` gets their traces.
    pub fn restarts(self, collector: Option<String>) -> Result<Option<Restarts>, DevError> {
        if self.no_restart {
            return Ok(None);
        }
        let binary = env::current_exe().map_err(DevError::Functions)?;
        let sources = Sources::of_binary(&binary);
        let build = match self.build_command {
            Some(_) if !sources.are_known() => return Err(DevError::UnknownSources { list: sources.list }),
            Some(command) => Some(BuildCommand::shell(&command)),
            None => BuildCommand::of_cargo_run(&binary).filter(|_| sources.are_known()),
        };
        Ok(build.map(|build| Restarts { binary, sources, build, collector }))
    }
}
