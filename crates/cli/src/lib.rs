//! The `daybook` command: the local stack, and operator commands for a deployed or local stack.
//!
//! In reading order:
//! - [`commands`]: the command line; one file for each command.
//! - [`operator`]: the shared parts of operator commands: target stack, selection, rate limit and interruption.
//! - [`dev`]: the local stack.
//! - [`message_schemas`]: the description of the messages for their consumers.
//! - `aws`: AWS configuration. `metered_client`: counts calls and units. `http`: requests to an API, signed if needed. `termination`: Ctrl-C and SIGTERM.
//! - `scaffold`: the files that `daybook new`, `daybook add` and `daybook upgrade` write. [`fixtures`]: the events of a project and their responses.
//! - [`logs`]: the logs of the process, and the traces of the local stack.
//! - `project`: the aggregates and the projections, which a project hands to [`main`]. `entry`: runs a process.

mod aws;
pub mod commands;
pub mod dev;
mod entry;
pub mod fixtures;
mod http;
pub mod logs;
pub mod message_schemas;
mod metered_client;
pub mod operator;
mod project;
mod scaffold;
mod termination;

pub use entry::main;
pub use project::Project;
