//! Sends messages to the SQS queues of the suite.
//!
//! Invariant: a message of a queue that was not accepted is never taken for an accepted one. The other way round is possible.

mod queue;

pub use queue::{Queue, SqsClient, Waits, without_retries};
