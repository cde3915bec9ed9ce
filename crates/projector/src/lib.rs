//! Lambda 4: folds the events of aggregates into the rows of views.
//!
//! A message of its queue contains no events, only the keys of aggregates that have new events and the numbers of their
//! last events. The projector reads the events from the table: for each aggregate and each projection, those after the
//! stored position. Late, repeated, reordered and unnecessary messages therefore do no harm. To *project* an aggregate
//! is to fold these events into the views.
//!
//! Invariants:
//! - An event is folded into a view exactly once, because the rows and the position are written in one transaction.
//! - An event that cannot be folded suspends its aggregate in that projection, and stops nothing else.
//! - The version of a view that readers get shows an event only after all versions to which they may be switched
//!   show it.
//!
//! In reading order:
//! - [`run`], [`run_with`]: the `main` of the function, with its settings.
//! - [`handler`]: one invocation. `versions`: the order of a projection's versions.
//! - [`project`]: folds the events of some aggregates into one view, in as few transactions as possible, with pauses between two
//!   attempts.
//! - `plan`: selects the events that fit into one transaction, and applies their changes to the rows.
//! - [`target`]: targets besides the views table, such as an SQL database.

mod function;
pub mod handler;
mod plan;
pub mod project;
pub mod target;
mod versions;

pub use daybook_function_runtime::{QueueBatch, QueueFailure, QueueRecord, QueueResponse};
pub use function::{run, run_with, views_table};
pub use handler::Projector;
pub use project::{EventRange, Projected, Projecting};
pub use target::{EventTarget, TargetError, TargetEvent};
