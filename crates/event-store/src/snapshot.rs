//! Snapshots: folded states that save reading the events before them. A snapshot of another state version, or one that
//! cannot be read, is ignored.
//!
//! Invariants:
//! - `#SNAPSHOT` never becomes older, whoever writes it: late, repeated and concurrent runs change nothing.
//! - A snapshot of another state version is copied to the kept snapshots before it is replaced, because another
//!   release may still need it, for as long as a release may be rolled back.
//!
//! In reading order: `take`: takes a snapshot, and repairs wrong ones; `put`: decides which existing snapshot it replaces;
//! `base`: the state that a fold starts from; `codec`: the stored form of a state.

mod base;
mod codec;
mod put;
mod take;

pub use self::take::SnapshotOutcome;
