//! Lambda 1: commands and queries over HTTP.
//!
//! Parses each request, loads the aggregate, lets it decide, appends the events and responds. This crate contains neither
//! the rules of an aggregate nor the format of stored items.
//!
//! Invariants:
//! - Only an append may be based on a cached state, because its condition fails if that state is outdated. Every other
//!   response is based on a state that was read for it.
//! - Every error is a `Problem`, whose type has one status.
//! - A route, its handler and its documentation are one endpoint; there is no other list of routes.
//!
//! In reading order:
//! - [`gateway`]: requests of API Gateway as HTTP requests.
//! - `router`: the routes of all endpoints, below the path at which clients find the API.
//! - `endpoints`: one file for each; all writes use `endpoints::write`.
//! - `request`, `response`: the parts of requests and responses.
//! - `problem`: errors as `application/problem+json`, each type defined once.
//! - [`openapi`]: the OpenAPI document, made from the endpoints and the registered aggregates.
//! - `etag`: entity tags.
//! - `operator`: the reads for operator commands. `canary`: the aggregate that a deployment's hook writes and reads.
//! - [`run`]: the `main` of the function.
//! - `api`: what the endpoints share; [`settings`]: the environment variables. `signals`: metrics,
//!   and their log lines.

mod api;
mod canary;
mod endpoints;
mod etag;
mod function;
pub mod gateway;
pub mod openapi;
mod operator;
mod problem;
mod request;
mod response;
mod router;
pub mod settings;
mod signals;

pub use api::Api;
pub use function::run;
pub use operator::{OperatorReads, ReadResponse};
pub use problem::cause;
pub use router::router;
pub use settings::{ApiSettings, views_table};
