//! Load, append, snapshot and feeds: the event store over one DynamoDB table.
//!
//! Invariants:
//! - An append is one transaction, conditional on the version that was decided on. Numbers have no gap and no duplicate,
//!   and a message is in the outbox exactly when its event is in the stream.
//! - An aggregate is read strongly consistently and to the end of every page.
//! - The cache and the snapshots only save calls. What they hold never changes an answer.
//! - Nobody else owns a DynamoDB client.
//!
//! In reading order:
//! - [`store`]: the [`EventStore`] and its settings.
//! - [`load`]: the state of an aggregate, now or as it was.
//! - [`append`]: the transaction, and what its failures mean.
//! - [`idempotency`]: responses stored in the transaction that they answer.
//! - [`transact`]: load, decide and append, until no other writer is faster.
//! - [`snapshot`]: taking and reading snapshots.
//! - [`feed`]: events of one aggregate, events of a type.
//! - [`index`]: where events are, without their data: the aggregates of a type, the events of a window.
//! - [`outbox`]: outbox rows, to be sent again.
//! - [`progress`]: how far an aggregate and its snapshot are. [`scan`]: every partition of the table.
//! - [`verify`]: whether all rows of an aggregate are what they should be.
//! - [`limits`]: DynamoDB's limits, checked before the call.
//! - [`cache`], [`backoff`], [`error`], and [`schema`] for local tables.

pub mod append;
pub mod backoff;
pub mod cache;
pub mod error;
pub mod feed;
pub mod idempotency;
pub mod index;
pub mod limits;
pub mod load;
pub mod outbox;
mod packing;
pub mod progress;
pub mod scan;
pub mod schema;
pub mod snapshot;
pub mod store;
pub mod transact;
pub mod verify;

pub use append::AppendError;
pub use error::StoreError;
pub use feed::{FeedEvent, Page};
pub use idempotency::{CommandResponse, IdempotencyKey, ResponseToStore, StoredResponse};
pub use index::{IndexEntry, IndexPartition};
pub use load::{LoadOptions, LoadPolicy, Loaded};
pub use outbox::{OutboxPage, UnreadableRow};
pub use progress::{AggregateProgress, SnapshotProgress};
pub use scan::{Partitions, ScanKey};
pub use snapshot::SnapshotOutcome;
pub use store::{EventStore, StoreSettings};
pub use transact::{Decide, ResponseDetail, TransactError, TransactOptions, Transacted};
pub use verify::{Discrepancy, Finding, Verified};
