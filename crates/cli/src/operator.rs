//! The shared parts of the commands that work on a stack. What they do is in the crate `daybook-operations`.
//!
//! Invariants:
//! - Standard output contains one line for each finding, message or snapshot, and a summary as its last line; everything else
//!   goes to standard error.
//! - Commands that send or delete messages, or write events, default to a dry run; `--yes` executes them.
//! - After Ctrl-C, the summary describes how to go on. A closed output pipe also ends a command.

mod context;
mod exit;
pub(crate) mod local;
pub(crate) mod output;
pub mod target;

pub use context::OperatorContext;
pub(crate) use context::{CommandFuture, NoArgs, OnStack, Session};
pub use daybook_operations::{Interrupt, OperatorError, Stack, StackQueue};
pub(crate) use exit::Ended;
pub use exit::Exit;
