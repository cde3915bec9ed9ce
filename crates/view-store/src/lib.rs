//! The views over one DynamoDB table: the rows of each projection, and how far each aggregate's events are folded into
//! them.
//!
//! Invariants:
//! - Rows and positions are written in one transaction, on condition that all of them are as they were read. An event is
//!   therefore folded exactly once, however often its aggregate is projected, and by however many processes.
//! - The rows of one version of a projection never mix with those of another.
//! - The pointer of a projection is never cached: each reader reads it, strongly consistently, for each request.
//!
//! In reading order:
//! - [`keys`]: the keys of rows and positions.
//! - [`store`]: the [`ViewStore`]. `read`: positions and rows, for folding events into them. [`write`](mod@write): the
//!   transaction. `show`: rows for readers.
//! - [`pointer`]: which version of a projection is read. [`mark`]: how far a version is filled. `drop`: deletes a version.
//! - `suspended`: the aggregates whose events cannot be folded.
//! - `batch_get`, `transact_get`: reads of many items, and of one that is changing. `items`: the items. `table`: the
//!   creation of the table.

mod batch_get;
mod drop;
mod items;
pub mod keys;
pub mod mark;
pub mod pointer;
mod read;
mod show;
pub mod store;
mod suspended;
mod table;
mod transact_get;
pub mod write;

pub use drop::DroppedItems;
pub use items::Position;
pub use keys::{RowKey, View};
pub use mark::VersionMark;
pub use pointer::{Pointer, ProjectionVersions, SwitchOutcome};
pub use read::StoredRow;
pub use show::ShownRow;
pub use store::ViewStore;
pub use suspended::SuspendedAggregate;
pub use write::{PositionWrite, RowWrite, ViewWrite, WriteError, WriteOutcome, WriteTooLarge};
