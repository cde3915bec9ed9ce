//! EventBridge and SQS in memory, for development and tests: real HTTP, the services' limits and error codes, and
//! faults on demand.
//!
//! Invariant: what the services would refuse is refused here with the same code, and the same calls in the same order
//! have the same result: nothing is random. Of EventBridge there is `PutEvents` and no rules; of SQS what sends, receives,
//! deletes and hides messages of a standard queue. What arrived is read from the [`Bus`] itself, which stores it until it
//! is dropped, whether or not it is still in its queue.
//!
//! In reading order:
//! - [`Bus`]: what arrived, and what each call held.
//! - [`faults`]: what should go wrong.
//! - `router`: the endpoint of both services; `protocol`: what their operations read and return.
//! - `put_events` and `sqs`: the operations and their limits.

mod bus;
pub mod faults;
mod protocol;
mod put_events;
mod router;
mod sqs;

pub use bus::{Bus, Delivered, PutEventsCall, PutEventsResultEntry};
pub use faults::{CallFault, EntryFault, Faults, Rule};
pub use sqs::QueueMessage;

pub use crate::server::Server;
