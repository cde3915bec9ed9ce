//! Lambda 5: sends aggregates the commands of their deadlines that are due. To *fire* a deadline is to decide and append its
//! command.
//!
//! A message of its queue contains no command, only the names and times of deadlines. The reactor reads the row of each of them
//! from the table, and the command from the state of the aggregate. Late, lost, repeated and reordered messages therefore change
//! nothing: each minute, the tick finds what is due.
//!
//! Invariants:
//! - A deadline fires only while the state declares it, with its name and its time, and never before its time.
//! - A deadline fires once: its events, the row of its idempotency key and the row of the deadline change in one transaction.
//! - Only an error of the aggregate's code or data marks a deadline as failed. An outage only delays it.
//!
//! In reading order:
//! - [`run`]: the `main` of the function, with its settings.
//! - [`reactor`]: an invocation, with a batch of messages or a tick.
//! - `tick`: finds the deadlines that are due and sends them to the queue. `batch`: the deadlines of a batch of messages.
//! - `fire`: one deadline. `firing`: the decision on its command. `signals`: metrics.

mod batch;
mod fire;
mod firing;
mod function;
pub mod reactor;
mod signals;
mod tick;

pub use function::{reactions_queue, run};
pub use reactor::{Reactor, ReactorEvent};
