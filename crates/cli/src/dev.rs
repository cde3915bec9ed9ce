//! The local stack: the table, the API, the two stream functions behind their mappings, and the bus, in one process.
//!
//! Invariants:
//! - The functions run the handlers that Lambda runs, with the settings that template.yaml gives them.
//! - Everything it starts ends with it.
//!
//! In reading order:
//! - `args`: what can be asked for.
//! - `stack`: starting and stopping it all.
//! - `environment`: the functions' settings.
//! - `functions`: a stream function behind its mapping.
//! - `stream`: the table's stream, record by record.
//! - `endpoints`: what only this stack answers, under `/_dev/`.

mod args;
mod endpoints;
mod environment;
mod functions;
mod stack;
mod stream;

pub use args::Options;
pub use stack::{DevError, Stack};
