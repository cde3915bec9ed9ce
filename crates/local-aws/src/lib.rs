//! DynamoDB, EventBridge and SQS on one machine, for development and tests: real HTTP, the services' limits and error codes,
//! and faults on demand.
//!
//! Invariant: every server here listens where it is asked to, ends with its handle and leaves nothing behind. No crate that
//! is deployed uses this one.
//!
//! - [`dynamodb`]: the embedded engine behind an endpoint, a proxy in front of it that counts and fails, and the same
//!   engine without an endpoint.
//! - [`messaging`]: EventBridge and SQS in memory.

pub mod dynamodb;
pub mod messaging;
