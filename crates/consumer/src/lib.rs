//! A consumer of the bus: applies each message to the consumer's rows exactly once, and in the order of its aggregate.
//!
//! The relay delivers each message at least once, and the bus does not preserve the order. A [`Consumer`] is a function
//! of a message and some rows, and a [`ConsumerFunction`] calls it behind an SQS queue or a rule of EventBridge.
//!
//! Invariants:
//! - The rows that a message changes and the position of its aggregate are written in one transaction, so a message is
//!   applied exactly once.
//! - A message is applied only after the message before it, or after an operator skipped that one.
//! - A message whose turn has not come is stored, so that it is not lost at the retry limit of a queue.
//! - A message that cannot be applied stops its own aggregate only.
//! - This crate depends on no other crate of the suite.
//!
//! In reading order:
//! - [`message`]: a message as it arrives. [`order`]: which message is next, and which are missing.
//! - [`consumer`]: the trait that you implement. [`rows`]: the rows that a message reads and changes, and
//!   [`now`], the time that they may contain. [`testing`]: tests of a consumer.
//! - [`function`]: one invocation. [`request`]: the requests of an operator.
//! - `receive`: the messages of one aggregate. `draft`: their changes, until these are written.
//! - [`table`]: the consumer's table. `items`: its stored format. `write`: its transaction.
//! - [`report`]: gaps and stopped aggregates.

#![warn(missing_docs)]

pub mod consumer;
mod draft;
mod error;
pub mod function;
mod items;
pub mod message;
pub mod order;
mod receive;
pub mod report;
pub mod request;
pub mod rows;
pub mod table;
pub mod testing;
mod write;

pub use consumer::Consumer;
pub use draft::MAX_ROWS;
pub use error::{HandleError, TableError};
pub use function::ConsumerFunction;
pub use message::{AggregateId, BusMessage, Number};
pub use rows::{Changes, RowKey, Rows, now};
pub use table::{ConsumerTable, create_table};
