//! Snapshots: a folded state that saves reading the events before it. Never trusted beyond that: one of another state
//! version, or one that cannot be read, is ignored.
//!
//! Invariants:
//! - `#SNAPSHOT` never becomes older, whoever writes it: late, repeated and crossing runs change nothing.
//! - What one release replaces, another may still need: a snapshot of another state version is set aside among the kept
//!   ones first, for as long as a release may be rolled back.
//!
//! In reading order: `take`: taking one; `put`: over which others it is put; `retention`: how many kept ones stay;
//! `base`: what a fold goes on from; `codec`: how a state is stored and read.

mod base;
mod codec;
mod put;
mod retention;
mod take;

pub(crate) use self::codec::StoredSnapshot;
pub(crate) use self::put::{Replaces, put_or_existing, unchanged};
pub use self::take::SnapshotOutcome;
