//! Local DynamoDB: the embedded engine behind an endpoint.
//!
//! - `engine`: the database of the engine, and what the local stack does with its private tables.
//! - `expiry`: moves its clock, and deletes the rows that have expired.
//! - `server`: the endpoint.

mod engine;
mod expiry;
mod server;

pub use engine::OpenError;
pub(crate) use engine::connect;
pub use expiry::{ForwardError, TableClock};
pub use server::{LocalDynamoDb, StartError};
