//! EventBridge and SQS in memory, for development and tests: real HTTP, the services' limits and error codes, and
//! faults on demand.
//!
//! Invariant: what the services would refuse is refused here with the same code, and the same calls in the same order
//! have the same outcome: nothing is random. Of EventBridge it knows `PutEvents` and no rules; of SQS what it takes to
//! send, receive, delete and hide messages in a standard queue. What arrived is read from the [`Bus`] itself, which keeps
//! it until it is dropped, whatever becomes of it in its queue.
//!
//! In reading order:
//! - [`bus`]: what arrived and what each call held.
//! - [`faults`]: what should go wrong.
//! - [`server`]: a port of its own, for tests.
//! - `wire`: the AWS JSON protocol; `put_events` and `send_message`: what comes in, and the limits.
//! - `queue`: messages that wait or are hidden; `receive_message`, and `receipts`: what can be done with one that was
//!   received.

pub mod bus;
pub mod faults;
mod put_events;
mod queue;
mod receipts;
mod receive_message;
mod send_message;
pub mod server;
mod wire;

pub use bus::{Bus, DeadLetter, Delivered, PutEventsCall, ResultEntry};
pub use faults::{CallFault, EntryFault, Faults, Rule};
pub use server::Server;
