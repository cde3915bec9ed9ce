//! Sends messages to the SQS queues of the suite.
//!
//! Invariant: a message of a queue that was not accepted is never taken for an accepted one. The other way round is possible.
//!
//! In reading order:
//! - [`Queue`]: sends messages to one queue, and counts those that wait in it.
//! - [`clients`]: clients that do not retry by themselves. [`Waits`]: the pauses between attempts.

pub mod clients;
mod queue;
mod waits;

pub use clients::SqsClient;
pub use queue::Queue;
pub use waits::Waits;
