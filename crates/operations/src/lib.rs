//! What an operator does to a deployed or local stack, as functions with typed results.
//!
//! Invariants:
//! - No function prints, reads a command line or ends the process. A function passes each finding to `report`, and the fraction
//!   that is done to [`Progress`]. If `report` fails, the operation ends at the next place where it leaves nothing half done.
//! - An [`Interrupt`] ends an operation between two aggregates or two batches of messages, never within one.
//!   Before it ends, [`dead_letters::redrive`] deletes the messages that it has sent, and puts the others back.
//!
//! In reading order:
//! - [`stack`]: the stack of an operation, its clients, and its description by CloudFormation. [`signed_calls`]: the account that
//!   it is in, and calls to services of which a few operations are needed. `error`: why an operation fails.
//! - [`selection`]: which aggregates, and their listing. [`moment`]: times before now.
//! - [`pacing`]: the rate limit, and whether an operation ends early. `walk`: visits the aggregates of a listing.
//! - [`reads`]: reads of the table with the code of the API.
//! - [`queues`]: the dead-letter queue, and those of the projector and the reactor. [`messages`]: what is in the
//!   dead-letter queue, and what becomes of messages that are sent again. [`queue_reading`]: reads the dead-letter queue.
//!   [`dead_letters`]: the operations on it.
//! - [`discarded_objects`]: the records that event source mappings discarded.
//! - [`health`]: the relay, and the alarms with their figures.
//! - [`verify`], [`derived`], [`deadlines`], [`processes`], [`snapshot`], [`export`], [`import`], [`republish`], [`discarded`],
//!   [`projections`], [`restore`]: the other operations.

pub mod dead_letters;
pub mod deadlines;
pub mod derived;
pub mod discarded;
pub mod discarded_objects;
mod error;
pub mod export;
pub mod forget;
pub mod health;
pub mod import;
pub mod messages;
pub mod moment;
pub mod pacing;
pub mod processes;
pub mod projections;
pub mod queue_reading;
pub mod queues;
pub mod reads;
pub mod republish;
pub mod restore;
pub mod selection;
pub mod signed_calls;
pub mod snapshot;
pub mod stack;
pub mod verify;
pub mod walk;

pub use daybook_history as history;
pub use error::OperatorError;
pub use pacing::Interrupt;
pub use queues::StackQueue;
pub use selection::check_shards;
pub use stack::{Progress, Stack};
