//! Replaces the functions after a change of their sources: builds them, and starts them in a new process.
//!
//! In reading order:
//! - `rebuilder`: waits for changes, builds, and replaces the functions.
//! - `restarts`: the binary that is built. `sources`: its sources. `build_command`: the command that builds it.
//! - `child`: the process of a version. `serve`: what runs in that process.

mod build_command;
mod child;
mod rebuilder;
mod restarts;
mod serve;
mod sources;

pub(crate) use rebuilder::Rebuilder;
pub use restarts::{RestartArgs, Restarts};
pub use serve::serve;
