//! The deadlines of a batch of messages.

use std::collections::{BTreeMap, BTreeSet};

use daybook_function_runtime::{QueueBatch, QueueRecord, QueueResponse};
use daybook_table::{AggregateKey, DueDeadline, DueDeadlines, keys};
use futures_util::{StreamExt, stream};
use tokio::time::Instant;

use crate::reactor::Reactor;

/// Maximum aggregates whose deadlines fire concurrently.
const CONCURRENCY: usize = 8;

/// The messages that name a deadline.
#[derive(Debug, Default)]
struct Named {
    messages: Vec<String>,
    /// How often one of them was received.
    receives: u32,
}

/// The deadlines of an aggregate, in the order of their times.
type OfAggregate = BTreeMap<DueDeadline, Named>;

impl Reactor {
    /// Fires the deadlines that the messages name, those of an aggregate one after the other. Returns the messages of which not
    /// all deadlines are done.
    pub(crate) async fn fire_all(&self, batch: QueueBatch, cutoff: Instant) -> QueueResponse {
        let messages = batch.records.len();
        let (deadlines, mut failed) = self.read(batch.records);
        let mut aggregates: Vec<_> = deadlines.into_values().collect();
        // Those that have been due for the longest time fire first.
        aggregates.sort_by(|one, other| one.keys().next().cmp(&other.keys().next()));
        let again = stream::iter(aggregates).map(|of_aggregate| self.fire_each(of_aggregate, cutoff));
        failed.extend(again.buffer_unordered(CONCURRENCY).collect::<Vec<_>>().await.into_iter().flatten());
        tracing::info!(messages, failed = failed.len(), "batch");
        QueueResponse::failed(failed)
    }

    /// The deadlines of messages by aggregate, and the messages that cannot be read. The dead-letter queue gets these.
    fn read(&self, records: Vec<QueueRecord>) -> (BTreeMap<AggregateKey, OfAggregate>, BTreeSet<String>) {
        let (mut deadlines, mut failed) = (BTreeMap::<_, OfAggregate>::new(), BTreeSet::new());
        for QueueRecord { message_id, body, receives } in records {
            match serde_json::from_str::<DueDeadlines>(&body) {
                Ok(of_message) => {
                    for deadline in of_message {
                        // DynamoDB would reject the read of the row.
                        let DueDeadline { key, name, .. } = &deadline;
                        if ![&key.aggregate_type, &key.id, name].into_iter().all(|text| keys::is_id(text)) {
                            self.signals.failed();
                            tracing::error!(message_id, aggregate = %key, name, "the message names no deadline");
                            failed.insert(message_id.clone());
                            continue;
                        }
                        let of_aggregate = deadlines.entry(deadline.key.clone()).or_default();
                        let named = of_aggregate.entry(deadline).or_default();
                        named.messages.push(message_id.clone());
                        named.receives = named.receives.max(receives);
                    }
                }
                Err(error) => {
                    self.signals.failed();
                    tracing::error!(message_id, %error, "the message cannot be read");
                    failed.insert(message_id);
                }
            }
        }
        (deadlines, failed)
    }

    /// Fires the deadlines of one aggregate. Returns the messages of those that have to be tried again.
    async fn fire_each(&self, deadlines: OfAggregate, cutoff: Instant) -> Vec<String> {
        let mut again = Vec::new();
        for (deadline, Named { messages, receives }) in deadlines {
            let is_done = Instant::now() < cutoff && self.fire(&deadline, receives, cutoff).await;
            again.extend(if is_done { Vec::new() } else { messages });
        }
        again
    }
}
