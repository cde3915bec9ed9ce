//! The `daybook` command: the command line, and operator commands for a deployed or local stack.
//!
//! In reading order:
//! - [`commands`]: the command line; one file for each command.
//! - [`operator`]: the shared parts of operator commands: the options that select the stack, and the output.
//! - `entry`: runs a process, with its logs and the traces of the local stack.
//!
//! What the operator commands do is in the crates `daybook-operations` and `daybook-deployment-check`. The local stack,
//! [`Project`] and [`fixtures`] are in `daybook-local-stack`, the files of a project in `daybook-scaffold`, and the documents
//! that describe the messages in `daybook-api-documents`.

pub mod commands;
mod entry;
pub mod operator;

pub use daybook_local_stack::{Project, fixtures};
pub use entry::main;
