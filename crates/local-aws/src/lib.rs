//! DynamoDB, EventBridge and SQS on one machine, for development and tests: real HTTP, the services' limits and error codes,
//! and faults on demand.
//!
//! Invariant: every server here stops when its handle is dropped and leaves nothing behind. No crate that is deployed uses
//! this one.
//!
//! - [`dynamodb`]: the embedded engine behind an endpoint, a proxy in front of it that records calls and injects faults, and
//!   the same engine without an endpoint.
//! - [`messaging`]: EventBridge and SQS in memory.
//! - `server`: a server on a port of its own; `json_protocol`: the parts of the AWS JSON protocol that all services share.

pub mod dynamodb;
mod json_protocol;
pub mod messaging;
mod server;
