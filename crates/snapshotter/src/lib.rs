//! Lambda 3: takes a snapshot of every aggregate that is due for one.
//!
//! A snapshot is always of the aggregate's current state. A record only shows that its aggregate is due, so late,
//! repeated and reordered records do no harm, and several records of one aggregate lead to one snapshot.
//!
//! Invariants:
//! - Its own writes do not trigger it: it reacts to new events that the command handler marked as due, and writes no
//!   events.
//! - No aggregate depends on its snapshot, so none delays the others: a record is retried only when the store is not
//!   available, or when the invocation ran out of time before its turn.
//!
//! A snapshot that can never succeed, because an item is damaged or the aggregate's code panics, or that takes longer
//! than an invocation, is **skipped**, and the shard continues. No queue is needed for that: a record only identifies
//! the aggregate that is due, and everything else is in the table. A skipped record is logged at level ERROR with the
//! aggregate, if that can be read, and the record's sequence number; it counts as `SnapshotsFailed` and raises an
//! alarm. Once the item or the code that the log names is repaired, `daybook snapshot rebuild` for that aggregate takes
//! the snapshot, or its next due event does. Until then loads start from the last good snapshot, or fail on the same
//! item.
//!
//! An event of a newer release does not count as failed: an instance of that release, or of the release that replaces
//! this one, takes the snapshot at a later due event. Retries until then would block every shard during a gradual
//! deployment.
//!
//! In reading order:
//! - [`run`]: the `main` of the function.
//! - [`handler`]: an invocation.
//! - `due`: the aggregates of a batch that are due.

mod due;
mod function;
pub mod handler;

pub use daybook_stream_batch::{BatchResponse, SequenceNumber, StreamBatch};
pub use function::run;
pub use handler::{NoCheckpoint, Snapshotter};
