//! Local DynamoDB, EventBridge and SQS for development and tests: real HTTP, the services' limits and error codes, and injected
//! faults.
//!
//! Invariant: every server stops when its handle is dropped and leaves nothing behind. No deployed crate uses this one.
//!
//! - [`dynamodb`]: the embedded engine behind an endpoint.
//! - [`messaging`]: EventBridge and SQS in memory.
//! - [`json_protocol`]: the parts of the AWS JSON protocol that all services share. `server`: a server on a port of its own.

pub mod dynamodb;
pub mod json_protocol;
pub mod messaging;
mod server;
