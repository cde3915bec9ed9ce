//! Lambda 4: folds the events of aggregates into the rows of views.
//!
//! A message of its queue contains no event, only which aggregates have events up to which number. The events are read from
//! the table, after the position of each aggregate in each projection. Late, repeated, reordered and needless messages
//! therefore do no harm.
//!
//! Invariants:
//! - An event is folded into a view exactly once: the rows and the position are written in one transaction.
//! - An event that cannot be folded suspends its aggregate in that projection, and stops nothing else.
//! - No view that is read shows an event before the views that readers may be switched to.
//!
//! In reading order:
//! - [`handler`]: an invocation. `versions`: the order of a projection's versions.
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
mod versions;

pub use handler::{Projector, QueueBatch, QueueFailure, QueueRecord, QueueResponse};
pub use project::{Extent, ProjectError, Projected, Projecting, Suspended};
pub use settings::views_table;
pub use target::{EventTarget, TargetError, TargetEvent};
