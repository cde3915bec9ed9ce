//! The administrative calls of the event store, for operator commands, the local stack, the console and tests.
//!
//! Invariants:
//! - No Lambda function depends on this crate.
//! - It has no client of its own: each call uses the client, the table and the settings of an `EventStore`.
//!
//! In reading order:
//! - `handle`: [`Admin`], which [`AdminCalls::admin`] returns; the creation of the table.
//! - `index`: the positions of events without their data: the aggregates of a type, the events of a time window.
//! - `progress`: the versions of aggregates and of their snapshots, and how far processes have handled their events.
//! - `outbox`: the outbox rows of events, to send them again.
//! - `outcomes`: the outcomes of input, dispatches, answers and deadlines.
//! - `rows`: many rows by their keys, the events of one aggregate, the rows of one event, as they are stored, and every partition of
//!   the table.
//! - `verify`: checks all rows of an aggregate.
//! - `correct`: corrections of claims and deadlines.
//! - `import`: writes events that exist already, such as those of another table, and aggregates of a history file.

mod correct;
mod handle;
mod import;
mod index;
mod outbox;
mod outcomes;
mod progress;
mod rows;
mod verify;

pub use daybook_event_store::internal::ImportWrite;

pub use self::correct::{Corrected, CorrectedClaims, Derived};
pub use self::handle::{Admin, AdminCalls};
pub use self::import::{ImportBatch, ImportFailure, ImportOutcome, Imported, Importer};
pub use self::index::{IndexEntry, IndexPartition};
pub use self::outbox::EventMessages;
pub use self::outcomes::Outcome;
pub use self::progress::{AggregateProgress, FollowProgress, SnapshotProgress};
pub use self::rows::ScanKey;
pub use self::verify::{Discrepancy, Finding, Verified};
