//! The operator commands as they are typed, against the embedded DynamoDB behind a proxy, and EventBridge and SQS over HTTP.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod binary;
mod dlq;
mod documents;
mod republish;
mod shards;
mod snapshot;
mod support;
mod verify;
