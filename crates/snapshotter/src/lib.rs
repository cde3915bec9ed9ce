//! Lambda 3: takes a snapshot of every aggregate that is due for one.
//!
//! A snapshot is always of the aggregate's present state, so what a record contains beyond "this aggregate is due" does not
//! matter: late, repeated and reordered records do no harm, and several of one aggregate are one snapshot.
//!
//! Invariants:
//! - Its own writes do not trigger it: it reacts to new events that the command handler marked, and writes none.
//! - No aggregate needs a snapshot, so none holds up the others: only a store that is not available, and less time than an
//!   invocation has, make a record come again.
//!
//! What can never succeed, or takes longer than an invocation, is **given up**, and the shard moves on. Here that takes
//! no queue: a record contains only which aggregate is due, and everything else is in the table. So a record that is given
//! up is a line of level ERROR with the aggregate, if it can be read, and the record's sequence number, which raises an
//! alarm, and a count of `SnapshotsFailed`. Once the item that the line names is repaired, `daybook snapshot rebuild`
//! for that aggregate takes the snapshot, or its own next mark does. Until then it is no worse off than before: loads go on
//! from the last good snapshot, or fail on the same item.
//!
//! An event of a newer release is not given up but left alone: the instances of that release, or this one's successor, take
//! the snapshot at a later mark. Had it come again until then, a gradual deployment would hold up every shard.
//!
//! In reading order: [`handler`]: an invocation. `due`: which aggregates a batch asks for. [`settings`]: the environment
//! variables.

mod due;
pub mod handler;
pub mod settings;

pub use daybook_stream_batch::{BatchResponse, SequenceNumber, StreamBatch};
pub use handler::{NoCheckpoint, Snapshotter};
pub use settings::store_settings;
