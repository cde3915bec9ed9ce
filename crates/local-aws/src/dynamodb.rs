//! DynamoDB on one machine: the embedded engine behind an endpoint.

mod server;

pub use server::{LocalDynamoDb, StartError};
