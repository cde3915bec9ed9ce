//! Lambda 5: sends aggregates the commands of their deadlines that are due, and the commands of processes: those that a process
//! gets for the events of other aggregates, and those that it dispatches to them. To *fire* a deadline is to decide and append
//! its command.
//!
//! A message of its queue contains no command, only the names of deadlines and dispatches, or of aggregates with new events. The
//! reactor reads rows and events from the table, and commands from the state of the aggregate. Late, lost, repeated and reordered
//! messages about deadlines and dispatches therefore change nothing: each minute, the tick finds what is due. Events have no tick:
//! a message about them comes again until they are handled, and after a hundred times goes to the dead-letter queue, from which
//! operators move it back.
//!
//! Invariants:
//! - A deadline fires only while the state declares it, with its name and its time, and never before its time.
//! - A deadline fires once: its events, the row of its idempotency key and, if it is deleted, its own row change in one transaction.
//! - A process handles each event once, and those of an aggregate in their order. Of a dispatch, the target gets the command once,
//!   and only while the row is pending, the process its answer once, and the next dispatch follows. An outcome is stored in the
//!   transaction of its events, also if there are none: a repetition, on a later state, has the same.
//! - Only an error of the aggregate's code or data marks a deadline or a dispatch as failed, or suspends a position. An outage only
//!   delays it.
//!
//! In reading order:
//! - [`run`]: the `main` of the function, with its settings.
//! - [`reactor`]: an invocation, with a batch of messages or a tick, which finds the deadlines that are due and sends them to the
//!   queue. `batch`: what a batch of messages names.
//! - `fire`: one deadline. `dispatch`: the dispatches of a process. `follow`: the events that are input of processes.
//! - `deliver`: commands that an aggregate gets once. `reaction`: the decision on them, and on the command of a deadline;
//!   what follows if that fails.

mod batch;
mod deliver;
mod dispatch;
mod fire;
mod follow;
mod function;
mod reaction;
pub mod reactor;

pub use function::{reactions_queue, run};
pub use reactor::{Reactor, ReactorEvent};
