//! The store's administrative calls, for operator commands, the local stack and tests only.
//!
//! In reading order:
//! - `handle`: [`Admin`], which [`EventStore::admin`](crate::EventStore::admin) returns.
//! - `table`: creates the table where no template does.
//! - `index`: the positions of events without their data: the aggregates of a type, the events of a time window.
//! - `partitions`: every partition of the table.
//! - `progress`: the versions of aggregates and of their snapshots.
//! - `batch_get`: reads of many rows by their keys.
//! - `outbox`: the outbox rows of events, to send them again.
//! - `rebuild_snapshot`: repairs wrong snapshots.
//! - `rows`: the rows of one event, as they are stored.
//! - `verify`: checks all rows of an aggregate.
//! - `import`: writes events that exist already, such as those of another table.

mod batch_get;
mod handle;
mod import;
mod index;
mod outbox;
mod partitions;
mod progress;
mod rebuild_snapshot;
mod rows;
mod table;
mod verify;

pub use self::handle::Admin;
pub use self::import::{ImportBatch, ImportOptions};
pub use self::index::{IndexEntry, IndexPartition};
pub use self::outbox::{EventMessages, PublishedEvent};
pub use self::partitions::{PartitionPage, ScanKey};
pub use self::progress::{AggregateProgress, SnapshotProgress};
pub use self::verify::{Discrepancy, Finding, Verified};
