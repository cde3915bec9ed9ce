//! Lambda 1: commands and queries over HTTP.
//!
//! A request is parsed, the aggregate is loaded and decides, the events are appended, and the request is answered. This
//! crate knows neither the rules of an aggregate nor how anything is stored.
//!
//! Invariants:
//! - Only an append may be built on a cached state, because its condition finds out whether that is current. Every
//!   other answer is given from a state that was read for it.
//! - Every error is a `Problem`, whose type has one status.
//! - A route, its handler and its documentation are one endpoint; there is no other list of routes.
//!
//! In reading order:
//! - [`gateway`]: the way in, in Lambda.
//! - `router`: the routes of all endpoints.
//! - `endpoints`: one file each; `endpoints::write` is the one path of all writes.
//! - `request`, `response`: what they read and answer.
//! - `problem`: errors as `application/problem+json`, each type defined once.
//! - [`openapi`]: the OpenAPI document, made from the endpoints and the registered aggregates.
//! - `etag`: entity tags. `base_path`: the path below which clients find the API.
//! - `api`: what the endpoints share. [`settings`]: the environment variables. `signals`: metrics, and their log lines.

mod api;
mod base_path;
mod endpoints;
mod etag;
pub mod gateway;
pub mod openapi;
mod problem;
mod request;
mod response;
mod router;
pub mod settings;
mod signals;

pub use api::Api;
pub use router::router;
pub use settings::{ApiSettings, feed_delay, store_settings};
