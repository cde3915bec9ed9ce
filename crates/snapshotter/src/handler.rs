//! An invocation: takes a snapshot of each aggregate that is due in a batch of stream records.

use std::time::Duration;

use daybook_decider::Registry;
use daybook_event_store::{EventStore, SnapshotOutcome, StoreError};
use daybook_function_runtime::{FailureCounter, with_causes};
use daybook_stream_batch::{BatchResponse, SequenceNumber, StreamBatch};
use daybook_table::AggregateKey;
use futures_util::{StreamExt, stream};
use metrics::{Unit, counter, describe_counter};
use tokio::time::{Instant, timeout_at};

use crate::due::Due;

/// The time that an invocation leaves for its response.
const MARGIN: Duration = Duration::from_secs(1);

const CONCURRENCY: usize = 8;

pub struct Snapshotter {
    registry: Registry,
    store: EventStore,
    failures: FailureCounter,
}

/// The store was not available, and a record to be retried has no sequence number to report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a record to be retried has no sequence number, so the whole batch must be retried")]
pub struct NoCheckpoint;

impl Snapshotter {
    pub fn new(registry: Registry, store: EventStore) -> Self {
        for name in ["SnapshotsTaken", "SnapshotsTooLarge", "SnapshotsFailed"] {
            describe_counter!(name, Unit::Count, "");
        }
        Self { registry, store, failures: FailureCounter::new("SnapshotsFailed") }
    }

    /// Counts failures also under the version of the function that runs it, so that an alarm on this version can roll back
    /// its deployment.
    pub fn with_function_version(mut self, version: Option<String>) -> Self {
        self.failures.set_version(version);
        self
    }

    /// Takes the snapshots for a batch, in the time until `deadline`.
    pub async fn handle(&self, batch: StreamBatch, deadline: Instant) -> Result<BatchResponse, NoCheckpoint> {
        let cutoff = deadline.checked_sub(MARGIN).unwrap_or(deadline);
        let records = batch.records.len();
        let Due { aggregates, unreadable } = Due::read(&batch.records);
        for (number, error) in unreadable {
            self.skip(None, number.as_ref(), &format!("the record cannot be read: {error}"));
        }
        // In the order of the stream, so that the aggregates of a retry are the first ones of the next invocation.
        let mut due: Vec<_> = aggregates.into_iter().collect();
        due.sort_by(|(_, one), (_, other)| one.cmp(other));
        let aggregates = due.len();
        let failed: Vec<_> = stream::iter(due.into_iter().enumerate())
            .map(async |(position, (key, first))| {
                if Instant::now() >= cutoff {
                    return Some(first);
                }
                let is_done = match timeout_at(cutoff, self.take(&key, first.as_ref())).await {
                    Ok(outcome) => outcome.is_ok(),
                    // This aggregate had the whole time of the invocation, and a retry would have no more time. The
                    // others are retried without it.
                    Err(_) if position < CONCURRENCY => {
                        self.skip(Some(&key), first.as_ref(), "the time was up before it was folded");
                        true
                    }
                    Err(_) => false,
                };
                (!is_done).then_some(first)
            })
            .buffer_unordered(CONCURRENCY)
            .filter_map(async |failed| failed)
            .collect()
            .await;
        tracing::info!(records, aggregates, failed = failed.len(), "batch");
        // `None`, a record without a number, is the lowest.
        let Some(first) = failed.into_iter().min() else { return Ok(BatchResponse::clean()) };
        first.map(BatchResponse::from_checkpoint).ok_or(NoCheckpoint)
    }

    /// Takes one snapshot. An error means that it should be retried.
    async fn take(&self, key: &AggregateKey, first: Option<&SequenceNumber>) -> Result<(), StoreError> {
        let Some(model) = self.registry.get(&key.aggregate_type) else {
            tracing::warn!(aggregate = %key, "no aggregate of this type is registered, no snapshot taken");
            return Ok(());
        };
        match self.store.take_snapshot(model, key, self.store.now()).await {
            Ok(SnapshotOutcome::Taken { version }) => {
                counter!("SnapshotsTaken").increment(1);
                tracing::info!(aggregate = %key, version, "snapshot taken");
            }
            Ok(SnapshotOutcome::NotNewer | SnapshotOutcome::NotNeeded) => {}
            Ok(SnapshotOutcome::TooLarge { bytes }) => {
                counter!("SnapshotsTooLarge").increment(1);
                tracing::warn!(aggregate = %key, bytes, "state too large for a snapshot");
            }
            Err(error @ StoreError::Newer { .. }) => {
                tracing::warn!(aggregate = %key, error = with_causes(&error), "left to the newer release");
            }
            Err(error @ (StoreError::Corrupt { .. } | StoreError::Panicked { .. })) => {
                self.skip(Some(key), first, &with_causes(&error));
            }
            Err(error @ (StoreError::Unavailable { .. } | StoreError::InvalidRequest { .. })) => {
                tracing::warn!(aggregate = %key, error = with_causes(&error), "snapshot will be tried again");
                return Err(error);
            }
        }
        Ok(())
    }

    /// Logs and counts a snapshot that cannot be taken and is not retried.
    fn skip(&self, key: Option<&AggregateKey>, first: Option<&SequenceNumber>, error: &str) {
        let aggregate = key.map(AggregateKey::to_string);
        let sequence_number = first.map(SequenceNumber::as_str);
        self.failures.count("SnapshotsFailed");
        tracing::error!(aggregate, sequence_number, error, "no snapshot can be taken");
    }
}
