//! Lambda 4: folds the events of aggregates into the rows of views.
//!
//! A message of its queue only says that aggregates have new events. The events are read from the table, after the
//! position of each aggregate in each projection. Late, repeated, reordered and needless messages therefore do no harm.
//!
//! Invariants:
//! - An event is folded into a view exactly once: the rows and the position are written in one transaction.
//! - An event that cannot be folded suspends its aggregate in that projection, and stops nothing else.
//!
//! In reading order:
//! - [`handler`]: an invocation.
//! - [`project`]: the events of some aggregates, for one projection, in as few transactions as possible.
//! - `plan`: the events that fit one transaction. `fold`: their changes, folded into the rows.
//! - [`target`]: targets besides the views table, such as an SQL database.
//! - [`settings`]: the environment variables.

mod fold;
pub mod handler;
mod plan;
pub mod project;
pub mod settings;
pub mod target;

pub use handler::{Projector, QueueBatch, QueueFailure, QueueRecord, QueueResponse};
pub use project::{ProjectError, Projected, Projecting, Suspended};
pub use settings::views_table;
pub use target::{EventTarget, TargetError, TargetEvent};
