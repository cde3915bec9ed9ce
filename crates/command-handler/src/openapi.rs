//! The OpenAPI 3.1 document of the API, made from the endpoints and the registered aggregates.
//!
//! Schemas come from the types that are read and written, and examples from aggregates that execute a sample of each
//! command, so the examples show what the code does.
//!
//! In reading order:
//! - `document`: the whole document.
//! - `operation`: an endpoint as an operation; `subject`, `view`: what it is about.
//! - `problems`, `gateway`: the responses that operations share.
//! - `headers`, `parameters`: the headers of responses, and the parameters of requests.
//! - `schemas`, `json_schema`: the schemas.
//! - `examples`, `sample`: the examples.
//! - `component`: the names of shared parts.
//!
//! The description of the messages is made from the same samples and schemas.

mod component;
mod document;
mod examples;
mod gateway;
mod headers;
mod json_schema;
mod operation;
mod parameters;
mod problems;
mod sample;
mod schemas;
mod subject;
mod view;

pub use self::document::document;
pub use self::json_schema::{Variant, variants};
pub use self::sample::{ID, NOW, sample, ulid};
pub use self::schemas::Schemas;
