//! The `daybook` command: the local stack, and operator commands for a stack wherever it runs.
//!
//! In reading order:
//! - [`commands`]: the command line; one file for each command.
//! - [`operator`]: what operator commands share: which stack, which aggregates and messages, how fast, until when.
//! - [`dev`]: the local stack.
//! - `aws`: AWS configuration.

mod aws;
pub mod commands;
pub mod dev;
pub mod operator;
