//! Lambda 1: commands and queries over HTTP.
//!
//! A request goes straight through: parse it, load the aggregate, let it decide, append, answer. What an aggregate's
//! rules are, this crate does not know; how anything is stored, it does not know either.
//!
//! Invariants:
//! - Only an append may be built on a cached state, because its condition finds out when that is old. Every other answer
//!   is given from a state that was read for it.
//! - Every error is a [`Problem`], and [`Problem`] alone knows its status.
//!
//! In reading order:
//! - [`gateway`]: the way in, in Lambda.
//! - [`api`]: the routes.
//! - [`bounds`]: the time and the id of every request.
//! - [`mod@write`]: create, update, delete, commands: one path for all of them.
//! - [`idempotency`]: the same answer to a repeated request.
//! - [`read`]: the state of an aggregate.
//! - [`feeds`]: events and lists.
//! - [`request`]: what path, headers and body mean.
//! - [`query`]: what a query means.
//! - [`mod@body`]: the JSON of a body.
//! - [`trace`]: which trace a request belongs to.
//! - [`answer`]: the JSON of answers.
//! - [`problem`]: errors as `application/problem+json`.
//! - [`openapi`]: the document of it all.
//! - [`settings`]: the environment variables.

pub mod answer;
pub mod api;
pub mod body;
pub mod bounds;
pub mod feeds;
pub mod gateway;
pub mod idempotency;
pub mod openapi;
pub mod problem;
pub mod query;
pub mod read;
pub mod request;
pub mod settings;
pub mod trace;
pub mod write;

pub use api::{Api, router};
pub use problem::Problem;
pub use settings::{ApiSettings, store_settings};
