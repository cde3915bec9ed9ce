//! The operator commands with their arguments, against the embedded DynamoDB behind a fault proxy, and EventBridge and SQS over
//! HTTP.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod binary;
mod check_deployment;
mod check_deployment_settings;
mod claims;
mod console;
mod deadlines;
mod deadlines_rebuild;
mod deploy;
mod discarded;
mod dlq;
mod documents;
mod export;
mod forget;
mod import;
mod load;
mod moving;
mod process;
mod projection;
mod projection_versions;
mod reads;
mod rebuild;
mod relay_status;
mod republish;
mod restore;
mod schemas;
mod snapshot;
mod support;
mod table_check;
mod verify;
mod version;
mod views;
