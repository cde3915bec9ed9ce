//! Local DynamoDB, EventBridge and SQS for development and tests: real HTTP, the services' limits and error codes, and injected
//! faults.
//!
//! Invariant: every server stops when its handle is dropped and leaves nothing behind. No deployed crate uses this one.
//!
//! - [`dynamodb`]: the embedded engine behind an endpoint, a proxy in front of it that records calls and injects faults, and
//!   the same engine without an endpoint.
//! - [`messaging`]: EventBridge and SQS in memory.
//! - `server`: a server with its own port; `json_protocol`: the parts of the AWS JSON protocol that all services share.

pub mod dynamodb;
mod json_protocol;
pub mod messaging;
mod server;
