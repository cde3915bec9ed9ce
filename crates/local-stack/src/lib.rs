//! The local stack: table, API, the stream functions behind their event source mappings, and bus. Started by `cargo run`, it
//! builds the functions again after a change of their sources.
//!
//! Invariants:
//! - The functions run the handlers that Lambda runs, with the settings that template.yaml gives them.
//! - Everything that the stack starts ends with it.
//!
//! In reading order:
//! - `args`, `error`: the options, the project that the functions serve, and why the stack does not start.
//! - `stack`: starts and stops all parts, and has the schedule of the reactor.
//! - `services`: DynamoDB, EventBridge, SQS and KMS, and the discarded records. `servers`: what its HTTP servers share, and how
//!   requests are forwarded to another process.
//! - `functions`: the functions and the console, in one version of their code, and their settings. `restart`: replaces them after a
//!   change of their sources. `local_api`: what the API has only here.
//! - `mapping_worker`: the event source mapping in front of a stream function.
//!   `queue_worker`: the event source mapping of a queue, in front of the projector, the reactor and the functions
//!   of rules.
//! - `rule_option`: the rules of the bus that the command line gives. `rules`: their queues. `rule_function`: their functions.
//! - `usage`: the calls of the stack, and the units of the table that they use.
//! - `endpoints`: HTTP endpoints that only the local stack has, under `/_dev/`. `console`: those for the console,
//!   which `functions` calls.
//! - [`fixtures`]: the events of a project and their responses.
//!
//! Operator commands also use [`termination`]: Ctrl-C and SIGTERM.

mod args;
mod console;
mod endpoints;
mod error;
pub mod fixtures;
mod functions;
mod local_api;
mod mapping_worker;
mod queue_worker;
mod restart;
mod rule_function;
mod rule_option;
mod rules;
mod servers;
mod services;
mod stack;
pub mod termination;
mod usage;

pub use args::{DevArgs, Project};
pub use error::DevError;
pub use restart::{RestartArgs, Restarts, serve};
pub use rule_option::{RuleOption, rule_warnings};
pub use stack::LocalStack;
pub use usage::Usage;
