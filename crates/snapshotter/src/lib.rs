//! Lambda 3: takes a snapshot of every aggregate that is due for one.
//!
//! A snapshot is always of the aggregate's present state, so what a record says beyond "this aggregate is due" does not
//! matter: late, repeated and reordered records do no harm, and several of one aggregate are one snapshot.
//!
//! Invariants:
//! - Its own writes do not trigger it: it reacts to new events that the command handler marked, and writes none.
//! - No aggregate needs a snapshot, so none holds up the others: only a store that is not available, and less time than an
//!   invocation has, make a record come again.
//!
//! What can never succeed, or takes longer than an invocation, is **parked**, and the shard moves on. Here that takes
//! no queue: all that a record says is which aggregate is due, and everything else is in the table. So a parked record
//! is a line of level ERROR with the aggregate, if it can be read, and the record's place in the stream, which raises
//! an alarm, and a count of `SnapshotImpossible`; the way back, once the item that the line names is repaired, is
//! `daybook snapshot rebuild` for that aggregate, or its own next mark. Until then it is no worse off than before:
//! loads go on from the last good snapshot, or fail on the same item.
//!
//! An event of a newer release is not parked but left alone: the instances of that release, or this one's successor, take
//! the snapshot at a later mark. Had it come again until then, a gradual deployment would hold up every shard.
//!
//! In reading order: [`Snapshotter`], then `due`: which aggregates a batch asks for. [`settings`]: the environment
//! variables.

mod due;
pub mod settings;

use std::time::{Duration, SystemTime};

use daybook_decider::Registry;
use daybook_event_store::{EventStore, SnapshotOutcome, StoreError};
use daybook_function_runtime::with_causes;
pub use daybook_stream_batch::{BatchResponse, SequenceNumber, StreamBatch};
use daybook_table::AggregateKey;
use futures_util::{StreamExt, stream};
use jiff::Timestamp;
use lambda_runtime::LambdaEvent;
use metrics::{Unit, counter, describe_counter};
pub use settings::store_settings;
use tokio::time::{Instant, timeout_at};

/// What is left of an invocation's time for the answer.
const MARGIN: Duration = Duration::from_secs(1);

/// Aggregates that are folded side by side.
const CONCURRENCY: usize = 8;

/// The function.
pub struct Snapshotter {
    registry: Registry,
    store: EventStore,
}

/// The store was not available, and a record that must come again has no sequence number to say so by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a record to be retried has no sequence number, so the whole batch must come again")]
pub struct NoCheckpoint;

impl Snapshotter {
    /// Takes snapshots of these aggregates in that store.
    pub fn new(registry: Registry, store: EventStore) -> Self {
        for name in ["SnapshotsTaken", "SnapshotTooLarge", "SnapshotImpossible"] {
            describe_counter!(name, Unit::Count, "");
        }
        Self { registry, store }
    }

    /// [`handle`](Self::handle) as Lambda calls it.
    ///
    /// # Errors
    ///
    /// Those of `handle`.
    pub async fn invoke(&self, event: LambdaEvent<StreamBatch>) -> Result<BatchResponse, lambda_runtime::Error> {
        let left = event.context.deadline().duration_since(SystemTime::now()).unwrap_or_default();
        Ok(self.handle(event.payload, Instant::now() + left).await?)
    }

    /// Takes the snapshots that a batch asks for, in the time until `deadline`.
    ///
    /// # Errors
    ///
    /// When the batch must come again and there is no sequence number to say from where.
    pub async fn handle(&self, batch: StreamBatch, deadline: Instant) -> Result<BatchResponse, NoCheckpoint> {
        let cutoff = deadline.checked_sub(MARGIN).unwrap_or(deadline);
        let records = batch.records.len();
        // In the order of the stream, so that what comes again comes first.
        let mut due: Vec<_> = due::aggregates(&batch.records).into_iter().collect();
        due.sort_by(|(_, one), (_, other)| one.cmp(other));
        let aggregates = due.len();
        let failed: Vec<_> = stream::iter(due.into_iter().enumerate())
            .map(async |(place, (key, first))| {
                if Instant::now() >= cutoff {
                    return Some(first);
                }
                let settled = match timeout_at(cutoff, self.take(&key, first.as_ref())).await {
                    Ok(outcome) => outcome.is_ok(),
                    // It had the whole time, and would have no more the next time. The others come again, and before.
                    Err(_) if place < CONCURRENCY => {
                        park(Some(&key), first.as_ref(), "the time was up before it was folded");
                        true
                    }
                    Err(_) => false,
                };
                (!settled).then_some(first)
            })
            .buffer_unordered(CONCURRENCY)
            .filter_map(async |failed| failed)
            .collect()
            .await;
        tracing::info!(records, aggregates, failed = failed.len(), "batch");
        if failed.is_empty() {
            return Ok(BatchResponse::clean());
        }
        let checkpoint = failed.into_iter().collect::<Option<Vec<_>>>().and_then(|numbers| numbers.into_iter().min());
        checkpoint.map(BatchResponse::from_checkpoint).ok_or(NoCheckpoint)
    }

    /// Takes one snapshot. An error means that it is worth trying again.
    async fn take(&self, key: &AggregateKey, first: Option<&SequenceNumber>) -> Result<(), StoreError> {
        let Some(model) = self.registry.get(&key.aggregate_type) else {
            tracing::warn!(aggregate = %key, "no aggregate of this type is registered, no snapshot taken");
            return Ok(());
        };
        match self.store.take_snapshot(model, key, Timestamp::now()).await {
            Ok(SnapshotOutcome::Taken { version }) => {
                counter!("SnapshotsTaken").increment(1);
                tracing::info!(aggregate = %key, version, "snapshot taken");
            }
            Ok(SnapshotOutcome::NotNewer | SnapshotOutcome::NotNeeded) => {}
            Ok(SnapshotOutcome::TooLarge { bytes }) => {
                counter!("SnapshotTooLarge").increment(1);
                tracing::warn!(aggregate = %key, bytes, "state too large for a snapshot");
            }
            Err(error @ StoreError::Newer { .. }) => {
                tracing::warn!(aggregate = %key, error = with_causes(&error), "left to the newer release");
            }
            Err(error @ StoreError::Corrupt { .. }) => {
                park(Some(key), first, &with_causes(&error));
            }
            Err(error @ (StoreError::Unavailable { .. } | StoreError::InvalidRequest { .. })) => {
                tracing::warn!(aggregate = %key, error = with_causes(&error), "snapshot will be tried again");
                return Err(error);
            }
        }
        Ok(())
    }
}

fn park(key: Option<&AggregateKey>, first: Option<&SequenceNumber>, error: &str) {
    let aggregate = key.map(AggregateKey::to_string);
    let sequence_number = first.map(SequenceNumber::as_str);
    counter!("SnapshotImpossible").increment(1);
    tracing::error!(aggregate, sequence_number, error, "no snapshot can be taken");
}
