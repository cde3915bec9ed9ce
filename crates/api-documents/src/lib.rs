//! The description of the messages on the bus for their consumers: JSON Schemas, an AsyncAPI document, and the changes
//! between two releases that break a consumer.
//!
//! In reading order:
//! - `described`: each message type with its schema. `examples`: messages that the aggregates publish.
//! - `documents`: the JSON Schema document and the AsyncAPI document.
//! - `changes`: the differences between two JSON Schema documents, as a consumer sees them.

mod changes;
mod described;
mod documents;
mod examples;

pub use changes::breaks;
pub use documents::{asyncapi, json_schema};
