//! The views over one DynamoDB table: the rows of each projection, and how far each aggregate's events are folded into
//! them.
//!
//! Invariants:
//! - Rows and positions are written in one transaction, on condition that all of them are as they were read. An event is
//!   therefore folded exactly once, however often its aggregate is projected, and by however many processes.
//! - The rows of one version of a projection never mix with those of another.
//!
//! In reading order:
//! - [`keys`]: the keys of rows and positions.
//! - [`store`]: the [`ViewStore`]. `read`: positions and rows, for folding events into them. [`write`](mod@write): the
//!   transaction. `show`: rows for readers.
//! - `suspended`: the aggregates whose events cannot be folded.
//! - `batch_get`, `transact_get`: reads of many items, and of one that is changing. `items`: the items. `table`: the
//!   creation of the table.

mod batch_get;
mod items;
pub mod keys;
mod read;
mod show;
pub mod store;
mod suspended;
mod table;
mod transact_get;
pub mod write;

pub use items::Position;
pub use keys::{RowKey, View};
pub use read::StoredRow;
pub use show::ShownRow;
pub use store::ViewStore;
pub use suspended::SuspendedAggregate;
pub use write::{PositionWrite, RowWrite, ViewWrite, WriteError, WriteOutcome, WriteTooLarge};
