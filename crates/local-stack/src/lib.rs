//! The local stack: table, API, the stream functions behind their event source mappings, and bus. Started by `cargo run`, it
//! builds the functions again after a change of their sources.
//!
//! Invariants:
//! - The functions run the handlers that Lambda runs, with the settings that template.yaml gives them.
//! - Everything that the stack starts ends with it.
//!
//! In reading order:
//! - `project`: the aggregates and the projections that the functions serve.
//! - `args`, `error`: the options, and why the stack does not start.
//! - `stack`: starts and stops all parts.
//! - `services`: DynamoDB, EventBridge and SQS, its own or external. `servers`: the parts that its HTTP servers share.
//!   `stop`: the signal that ends the stack.
//! - `environment`: the functions' settings.
//! - `functions`: the functions and the console, in one version of their code. `restart`: replaces them after a change of their
//!   sources. `forward`: forwards HTTP requests to another process.
//! - `mapping_worker`: the event source mapping in front of a function. `mapping_states`: what the mappings do. `queue_worker`:
//!   the event source mapping in front of the projector.
//! - `rule_option`: the rules of the bus that the command line gives. `rules`: their queues and workers. `rule_function`: the
//!   function of a rule. `rule_warnings`: what rules name that does not exist.
//! - `stream`: the table's stream, shard by shard. `checkpoints`: the position up to which a mapping has settled it.
//!   `discarded`: the records that mappings discarded.
//! - `usage`: the calls of the stack, and the units of the table that they use.
//! - `faults`: the injected faults.
//! - `caller`: the caller that a request names, in a header that only the local stack reads. `unknown_event`: the explanation of
//!   a stored event that the edited code does not know.
//! - `endpoints`: HTTP endpoints that only the local stack has, under `/_dev/`. `console`: those for the console.
//! - [`fixtures`]: the events of a project and their responses.
//!
//! What operator commands also use: [`aws`], the configuration of AWS clients; [`http`], requests to an API, signed if needed;
//! [`metered_client`], which counts calls and units; [`termination`], Ctrl-C and SIGTERM.

mod args;
pub mod aws;
mod caller;
mod checkpoints;
mod console;
mod discarded;
mod endpoints;
mod environment;
mod error;
mod faults;
pub mod fixtures;
mod forward;
mod functions;
pub mod http;
mod mapping_states;
mod mapping_worker;
pub mod metered_client;
mod project;
mod queue_worker;
mod restart;
mod rule_function;
mod rule_option;
mod rule_warnings;
mod rules;
mod servers;
mod services;
mod stack;
mod stop;
mod stream;
pub mod termination;
mod unknown_event;
mod usage;

pub use args::DevArgs;
pub use error::DevError;
pub use project::Project;
pub use restart::{RestartArgs, Restarts, serve};
pub use rule_option::RuleOption;
pub use rule_warnings::rule_warnings;
pub use stack::Stack;
pub use usage::Usage;
