//! The store's administrative face: what only operator commands, the local stack and tests use.
//!
//! In reading order:
//! - `handle`: [`Admin`], which [`EventStore::admin`](crate::EventStore::admin) returns.
//! - `table`: the table itself, where no template creates it.
//! - `index`: where events are, without their data: the aggregates of a type, the events of a window.
//! - `partitions`: every partition of the table.
//! - `progress`: how far an aggregate and its snapshot are.
//! - `outbox`: outbox rows, to be sent again.
//! - `rebuild_snapshot`: the cure for snapshots that are wrong.
//! - `verify`: whether all rows of an aggregate are what they should be.

mod handle;
mod index;
mod outbox;
mod partitions;
mod progress;
mod rebuild_snapshot;
mod table;
mod verify;

pub use self::handle::Admin;
pub use self::index::{IndexEntry, IndexPartition};
pub use self::outbox::{OutboxPage, UnreadableRow};
pub use self::partitions::ScanKey;
pub use self::progress::{AggregateProgress, SnapshotProgress};
pub use self::verify::{Discrepancy, Finding, Verified};
