//! The store of the views, in one DynamoDB table. It holds the rows of each version of a projection, and the position
//! of each aggregate: the number of the last event that is folded into these rows.
//!
//! Invariants:
//! - Rows and positions are written in one transaction, on condition that all of them are as they were read. An event
//!   is therefore folded exactly once, however often its aggregate is projected, and by however many processes.
//! - The rows of one version of a projection never mix with those of another.
//! - The pointer of a projection is never cached: each request or invocation that needs it reads it, strongly
//!   consistently.
//!
//! In reading order:
//! - `items`: the items, and the keys of rows, positions, pointers and marks.
//! - `store`: the [`ViewStore`], the creation of its table, and its reads for folding events. `write`: the transaction, and the
//!   aggregates of which an event cannot be folded. `show`: rows for readers.
//! - `versions`: the version of a projection that readers get, how far each version is filled, and the deletion of one.

mod items;
mod show;
mod store;
mod versions;
mod write;

pub use items::{PartKey, Position, View, part_of};
pub use show::{RowRange, ShownRow};
pub use store::{StoredPart, ViewStore};
pub use versions::{DroppedItems, Pointer, ProjectionVersions, VersionMark};
pub use write::{PositionWrite, RowWrite, SuspendedAggregate, ViewWrite, WriteError, WriteOutcome};
