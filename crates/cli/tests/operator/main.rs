//! The operator's verbs as they are typed, against the embedded engine behind a wire, and EventBridge and SQS over HTTP.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bench;
mod binary;
mod dlq;
mod documents;
mod republish;
mod shards;
mod snapshot;
mod verify;
