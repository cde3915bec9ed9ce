//! The deadlines and the changed aggregates of a batch of messages.

use std::collections::{BTreeMap, BTreeSet};

use daybook_function_runtime::{QueueBatch, QueueRecord, QueueResponse};
use daybook_table::{AggregateKey, ChangedAggregates, DueDeadline, DueDeadlines, keys};
use futures_util::{FutureExt, StreamExt, stream};
use serde::Deserialize;
use tokio::time::Instant;

use crate::reactor::Reactor;

/// Maximum aggregates that are handled concurrently.
const CONCURRENCY: usize = 8;

/// A message of the queue.
#[derive(Deserialize)]
#[serde(untagged)]
enum Message {
    Due(DueDeadlines),
    Changed(ChangedAggregates),
}

/// The messages that name a deadline, or a changed aggregate.
#[derive(Debug, Default)]
pub(crate) struct Named {
    messages: Vec<String>,
    /// How often one of them was received.
    pub(crate) receives: u32,
}

impl Named {
    fn add(&mut self, message_id: &str, receives: u32) {
        self.messages.push(message_id.to_owned());
        self.receives = self.receives.max(receives);
    }
}

/// The deadlines of an aggregate, in the order of their times.
pub(crate) type OfAggregate = BTreeMap<DueDeadline, Named>;

/// What the messages name.
#[derive(Default)]
struct Batch {
    deadlines: BTreeMap<AggregateKey, OfAggregate>,
    /// The aggregates that have new events, up to at least this number.
    changed: BTreeMap<AggregateKey, (u64, Named)>,
    /// The messages that cannot be read. The dead-letter queue gets these.
    unreadable: BTreeSet<String>,
}

impl Reactor {
    /// Fires the deadlines that the messages name, those of an aggregate one after the other, sends the dispatches among them, and
    /// hands the events of changed aggregates to processes. Returns the messages of which not all is done.
    pub(crate) async fn react(&self, batch: QueueBatch, cutoff: Instant) -> QueueResponse {
        let messages = batch.records.len();
        let Batch { deadlines, changed, unreadable: mut failed } = self.read(batch.records);
        let mut aggregates: Vec<_> = deadlines.into_iter().collect();
        // Those that have been due for the longest time fire first.
        aggregates.sort_by(|(_, one), (_, other)| one.keys().next().cmp(&other.keys().next()));
        let due = aggregates.into_iter().map(|(key, named)| self.fire_each(key, named, cutoff).boxed());
        let followed = changed.into_iter().map(|(source, (last, named))| {
            let follow = async move {
                let is_done = Instant::now() < cutoff && self.follow(&source, last, &named, cutoff).await;
                if is_done { Vec::new() } else { named.messages }
            };
            follow.boxed()
        });
        let all = stream::iter(due.chain(followed).collect::<Vec<_>>()).buffer_unordered(CONCURRENCY);
        failed.extend(all.collect::<Vec<_>>().await.into_iter().flatten());
        tracing::info!(messages, failed = failed.len(), "batch");
        QueueResponse::failed(failed)
    }

    fn read(&self, records: Vec<QueueRecord>) -> Batch {
        let mut batch = Batch::default();
        for QueueRecord { message_id, body, receives } in records {
            // DynamoDB would reject the read of a row whose key is too long.
            let is_key = |key: &AggregateKey| keys::is_id(&key.aggregate_type) && keys::is_id(&key.id);
            let mut wrong = None;
            match serde_json::from_str(&body) {
                Ok(Message::Due(of_message)) => {
                    for deadline in of_message {
                        if !is_key(&deadline.key) || !keys::is_id(&deadline.name) {
                            wrong = Some(format!("it names no deadline: {} {}", deadline.key, deadline.name));
                            continue;
                        }
                        let of_aggregate = batch.deadlines.entry(deadline.key.clone()).or_default();
                        of_aggregate.entry(deadline).or_default().add(&message_id, receives);
                    }
                }
                Ok(Message::Changed(of_message)) => {
                    for (key, last) in of_message.with_last_events() {
                        if !is_key(&key) {
                            wrong = Some(format!("it names no aggregate: {key}"));
                            continue;
                        }
                        let (known, named) = batch.changed.entry(key).or_default();
                        *known = last.max(*known);
                        named.add(&message_id, receives);
                    }
                }
                Err(error) => wrong = Some(error.to_string()),
            }
            if let Some(reason) = wrong {
                self.count_failed();
                tracing::error!(message_id, reason, "the message cannot be read");
                batch.unreadable.insert(message_id);
            }
        }
        batch
    }

    /// Fires the deadlines of one aggregate, after the dispatches of a process. Returns the messages of those that have to be tried
    /// again.
    async fn fire_each(&self, key: AggregateKey, deadlines: OfAggregate, cutoff: Instant) -> Vec<String> {
        let model = self.registry.get(&key.aggregate_type).filter(|model| !model.sources().is_empty());
        let mut dispatched = None;
        if let Some(model) = model.filter(|_| Instant::now() < cutoff) {
            dispatched = Some(self.dispatch_all(&key, model, &deadlines, cutoff).await);
        }
        let mut again = Vec::new();
        for (deadline, Named { messages, receives }) in deadlines {
            let is_done = Instant::now() < cutoff
                && match &dispatched {
                    Some(Err(failure)) => self.settle(&deadline, None, receives, Err(failure.clone())).await,
                    Some(Ok(of)) if !of.deadlines.contains(&deadline.name) => of.again.as_ref() != Some(&deadline.name),
                    _ => self.fire(&deadline, receives, cutoff).await,
                };
            again.extend(if is_done { Vec::new() } else { messages });
        }
        again
    }
}
