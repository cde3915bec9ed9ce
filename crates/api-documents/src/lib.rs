//! The description of the messages on the bus for their consumers: JSON Schemas, an AsyncAPI document, and the changes
//! between two releases that break a consumer. And what follows what, for the page *Model* of the console.
//!
//! In reading order:
//! - `examples`: what the aggregates decide on samples.
//! - `documents`: the JSON Schema document and the AsyncAPI document, from each message type with its schema.
//! - `changes`: the differences between two JSON Schema documents, as a consumer sees them.
//! - `flows`: the messages and the commands that follow each event.

mod changes;
mod documents;
mod examples;
mod flows;

pub use changes::breaks;
pub use documents::{asyncapi, json_schema};
pub use flows::{Flows, Link, LinkKind};
