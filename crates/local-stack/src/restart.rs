//! Replaces the functions after a change of their sources: builds them, and starts them in a new process.
//!
//! In reading order:
//! - `rebuilder`: waits for changes, builds, and replaces the functions.
//! - `build_command`: the binary that is built, and the command that builds it. `sources`: its sources.
//! - `process`: the process of a version, and what runs in it.

mod build_command;
mod process;
mod rebuilder;
mod sources;

pub use build_command::{RestartArgs, Restarts};
pub use process::serve;
pub(crate) use rebuilder::Rebuilder;
