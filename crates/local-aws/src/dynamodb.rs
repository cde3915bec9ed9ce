//! Local DynamoDB: the embedded engine behind an endpoint.
//!
//! - `engine`: the database of the engine, and the local stack's additions to it.
//! - `server`: the endpoint.

mod engine;
mod server;

pub use engine::OpenError;
pub(crate) use engine::connect;
pub use server::{LocalDynamoDb, StartError};
