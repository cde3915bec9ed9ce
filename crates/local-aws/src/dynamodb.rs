//! Local DynamoDB, in reading order:
//! - `server`: the embedded engine behind an endpoint.
//! - `fault_proxy`: a proxy in front of an endpoint that records calls and injects faults.
//! - `engine`: the embedded engine without an endpoint, with the caller's clock.

mod engine;
mod fault_proxy;
mod server;

pub use engine::{Engine, EngineResponse};
pub use fault_proxy::{FaultProxy, InjectedFault, RecordedCall};
pub use server::{LocalDynamoDb, StartError};
