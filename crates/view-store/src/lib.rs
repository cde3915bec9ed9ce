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
//! - [`store`]: the [`ViewStore`], the creation of its table, and its reads for folding events. [`write`](mod@write): the
//!   transaction. `show`: rows for readers.
//! - [`mod@pointer`]: the version of a projection that readers get. [`mark`]: how far a version is filled. `drop`: deletes
//!   a version.
//! - `suspended`: the aggregates of which an event cannot be folded.

mod drop;
mod items;
pub mod mark;
pub mod pointer;
mod show;
pub mod store;
mod suspended;
pub mod write;

pub use drop::DroppedItems;
pub use items::{Position, RowKey, View, shard_of};
pub use mark::VersionMark;
pub use pointer::{Pointer, ProjectionVersions};
pub use show::{RowRange, ShownRow};
pub use store::{StoredRow, ViewStore};
pub use suspended::SuspendedAggregate;
pub use write::{PositionWrite, RowWrite, ViewWrite, WriteError, WriteOutcome};
