//! The operator commands with their arguments, against the embedded DynamoDB behind a fault proxy, and EventBridge and SQS over
//! HTTP.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod binary;
mod check_deployment;
mod dlq;
mod documents;
mod load;
mod republish;
mod shards;
mod snapshot;
mod support;
mod verify;
mod version;
