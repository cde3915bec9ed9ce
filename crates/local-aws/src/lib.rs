//! Local DynamoDB, EventBridge, SQS, KMS, S3 and Lambda for development and tests: real HTTP, the services' limits and error
//! codes, and injected faults.
//!
//! Invariant: every server stops when its handle is dropped and leaves nothing behind. No deployed crate uses this one.
//!
//! - [`clock`]: the clock that all of it can share, and that can be moved forward.
//! - [`dynamodb`]: the embedded engine behind an endpoint.
//! - [`state`]: the local stack's own state, in the file of the engine.
//! - [`messaging`]: EventBridge, SQS and KMS, in memory or in that file.
//! - [`bucket`]: a bucket of S3.
//! - [`lambda`]: functions that speak the Lambda Runtime API.
//! - [`json_protocol`]: the AWS JSON protocol, which all services share.
//! - [`server`]: a server on a port of its own.

pub mod bucket;
pub mod clock;
pub mod dynamodb;
pub mod json_protocol;
pub mod lambda;
pub mod messaging;
pub mod server;
pub mod state;
