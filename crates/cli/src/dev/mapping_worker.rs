//! The event source mapping in front of a stream function.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use daybook_event_source_mapping::template::StreamEvent;
use daybook_event_source_mapping::{Batch, InvocationOutcome, Mapping, Record, Source, Step};
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use serde_json::Value;
use tokio::sync::mpsc::{self, Receiver};

use super::functions::StreamFunction;
use super::stream::TableStream;

/// Maximum records that are read from a shard before the mapping accepts them.
const READ_AHEAD: usize = 1000;

/// The records that mappings discarded, as an on-failure destination receives them.
#[derive(Clone, Default)]
pub(super) struct DiscardedRecords(Arc<Mutex<Vec<Value>>>);

impl DiscardedRecords {
    pub(super) fn all(&self) -> Vec<Value> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn push(&self, discarded: Value) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(discarded);
    }
}

/// A mapping of a stream to a function.
#[derive(Clone)]
pub(super) struct MappingWorker {
    pub(super) function: StreamFunction,
    pub(super) timeout: Duration,
    pub(super) event: StreamEvent,
    pub(super) stream: TableStream,
    pub(super) discarded: DiscardedRecords,
}

impl MappingWorker {
    /// Invokes the function with the records of the stream. Never ends.
    pub(super) async fn run(self) {
        self.stream.follow(|shard| self.clone().run_shard(shard)).await;
    }

    /// Reads a shard to its end, and ends when all of its records are settled.
    async fn run_shard(self, shard: String) {
        let (sender, records) = mpsc::channel(READ_AHEAD);
        tokio::join!(self.invoke_with(records, &shard), self.stream.read(&shard, sender));
    }

    /// Executes the mapping's steps for the records of a shard, until the shard has ended and all records are settled.
    async fn invoke_with(&self, mut records: Receiver<Record>, shard: &str) {
        let mut mapping = Mapping::new(self.event.settings.clone());
        let mut running: FuturesUnordered<BoxFuture<'_, (Batch, InvocationOutcome)>> = FuturesUnordered::new();
        let mut ended = false;
        loop {
            let wake = loop {
                match mapping.poll(now()) {
                    Step::Invoke(batch) => running.push(Box::pin(self.invoke(batch))),
                    Step::Discard(discarded) => {
                        let source = Source {
                            function_arn: self.function.name(),
                            stream_arn: &self.stream.arn,
                            shard_id: shard,
                            request_id: "daybook-dev",
                        };
                        tracing::error!(function = self.function.name(), reason = ?discarded.reason, "records discarded");
                        self.discarded.push(discarded.document(&source));
                    }
                    Step::Wait { until } => break until,
                }
            };
            if ended && running.is_empty() && wake.is_none() {
                return;
            }
            let pause = wake.map_or(Duration::MAX, |until| until.saturating_sub(now()));
            tokio::select! {
                Some((batch, outcome)) = running.next(), if !running.is_empty() => mapping.settle(batch, outcome, now()),
                record = records.recv(), if !ended => match record {
                    // The mapping rejects a record that it already has: a reader that starts over sends it again.
                    Some(record) => drop(mapping.push(record, now())),
                    None => ended = true,
                },
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    async fn invoke(&self, batch: Batch) -> (Batch, InvocationOutcome) {
        let outcome = self.function.invoke(batch.payload(), self.timeout).await;
        (batch, outcome)
    }
}

/// The mapping's clock: the time since 1970.
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
