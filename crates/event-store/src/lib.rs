//! The event store over one DynamoDB table: load, append, snapshots and feeds.
//!
//! Invariants:
//! - An append is one transaction, conditional on the version that was decided on. Numbers have no gap and no
//!   duplicate, and a message is in the outbox exactly when its event is in the stream.
//! - An aggregate is read strongly consistently and to the end of every page.
//! - The cache and the snapshots only save calls. Their contents never change a result.
//! - Within an aggregate, the times and ids of events never run backwards. An event is visible within
//!   [`SETTLE_WRITES`] of its time, or never. Imported events are the exception: they have the times and ids of their
//!   history.
//! - No other crate calls its table, except `daybook-admin` with the calls of operators.
//!
//! The modules that the functions use, in reading order:
//! - `store`: the [`EventStore`] with its settings, and one aggregate in it.
//! - `transact`: load, decide and append, repeated until no other writer is faster; `turns`: the order of requests for
//!   the same aggregate, and the transactions that they share; `contention`: races with other processes; `settle`: the
//!   time after which a write is visible or never will be, and the decisions whose events are not visible yet.
//! - `load`: the state of an aggregate, now or at an earlier version, folded from its events. [`cache`]: the states in memory.
//! - `append`: the transaction, and the meaning of its failures.
//! - `deadlines`: the commands that aggregates get at a time. `positions`: how far processes have handled the events of others.
//! - `idempotency`: responses that are stored in the transaction of their command.
//! - `snapshot`: taking and reading snapshots.
//! - `subject_keys`: the keys under which personal values are sealed; `opened`: the rows that contain such values.
//! - `feed`: events of one aggregate, events of a type; `page`: their pages, and the rows that they leave out.
//!
//! [`internal`] is for `daybook-admin`, the calls of operators, and for `daybook-view-store`.
//!
//! Modules that the others share: [`limits`]: DynamoDB's limits, checked before the call. `checksum`: whether a row is as
//! it was written. `backoff`, `packing`, `item`, `error`.

mod append;
mod backoff;
pub mod cache;
mod checksum;
mod contention;
mod deadlines;
mod error;
mod feed;
mod idempotency;
mod item;
pub mod limits;
mod load;
mod opened;
mod packing;
mod page;
mod positions;
mod settle;
mod snapshot;
mod store;
mod subject_keys;
mod transact;
mod turns;

/// The parts of the store that `daybook-admin` and `daybook-view-store` are built of: rows, and how the store reads and writes
/// them.
pub mod internal {
    pub use crate::append::{ImportWrite, NewEvents};
    pub use crate::backoff::Backoff;
    pub use crate::checksum::{is_valid as is_valid_checksum, seal as seal_with_checksum};
    pub use crate::error::if_condition_holds;
    pub use crate::item::{BATCH_LEFT, BATCH_PATIENCE, Item, batch_get, event_item, number, row_key, text};
    pub use crate::packing::unpack;
    pub use crate::page::Slice;
}

pub use append::AppendError;
pub use cache::Loaded;
pub use deadlines::{DeadlineMark, StoredDeadline};
pub use error::{Cause, StoreError};
pub use feed::FeedEvent;
pub use idempotency::{CommandResponse, IdempotencyKey, StoredResponse};
pub use load::{LoadOptions, LoadPolicy};
pub use page::{Page, UnreadableRow};
pub use positions::{PositionMove, StoredPosition};
pub use settle::{ARRIVAL_TIME, CALL_TIMEOUT, SEND_WINDOW, SETTLE_WRITES};
pub use snapshot::SnapshotOutcome;
pub use store::{EventStore, StoreSettings, dynamodb_client, without_retries};
pub use subject_keys::{Sealing, SubjectKeys};
pub use transact::{Decide, ResponseDetail, TransactError, TransactOptions, Transacted, Undecided};
