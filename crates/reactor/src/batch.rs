//! The deadlines and the changed aggregates of a batch of messages.

use std::collections::{BTreeMap, BTreeSet};

use daybook_function_runtime::{QueueBatch, QueueRecord, QueueResponse};
use daybook_table::{AggregateKey, Changed, ChangedAggregates, DueDeadline, DueDeadlines, keys};
use futures_util::{FutureExt, StreamExt, stream};
use serde::Deserialize;
use tokio::time::Instant;

use crate::reactor::{OLDEST_FAILED, Reactor};

/// Maximum aggregates that are handled concurrently.
const CONCURRENCY: usize = 8;

#[derive(Deserialize)]
#[serde(untagged)]
enum Message {
    Due(DueDeadlines),
    Changed(ChangedAggregates),
}

/// The deadlines of an aggregate in the order of their times, each with the ids of the messages that name it: `hold` at 12:00 of
/// `reservation/7`, named by `m1` and `m2`.
type OfAggregate = BTreeMap<DueDeadline, Vec<String>>;

/// What the messages of a batch name, each with the ids of these messages, which come again if it is not done.
#[derive(Default)]
struct Hints {
    deadlines: BTreeMap<AggregateKey, OfAggregate>,
    /// The aggregates that have new events, each with the type of processes that get them, if not all do.
    changed: BTreeMap<(AggregateKey, Option<String>), Changed<String>>,
    /// The messages that cannot be read. The dead-letter queue gets these.
    unreadable: BTreeSet<String>,
}

impl Reactor {
    /// Fires the deadlines that the messages name, those of an aggregate one after the other, sends the dispatches among them, and
    /// hands the events of changed aggregates to processes. Returns the messages of which not all is done.
    pub(crate) async fn react(&self, batch: QueueBatch, cutoff: Instant) -> QueueResponse {
        let failed = self.react_to(self.read(&batch.records), cutoff).await;
        tracing::info!(messages = batch.records.len(), failed = failed.len(), "batch");
        batch.failed(failed, OLDEST_FAILED, self.store.now().into())
    }

    /// Does the same with these deadlines, which no message names.
    pub(crate) async fn fire_all(&self, due: Vec<DueDeadline>, cutoff: Instant) {
        let mut hints = Hints::default();
        for deadline in due {
            hints.deadlines.entry(deadline.key.clone()).or_default().insert(deadline, Vec::new());
        }
        self.react_to(hints, cutoff).await;
    }

    async fn react_to(&self, hints: Hints, cutoff: Instant) -> BTreeSet<String> {
        let Hints { deadlines, changed, unreadable: mut failed } = hints;
        let mut aggregates: Vec<_> = deadlines.into_iter().collect();
        // Those that have been due for the longest time fire first.
        aggregates.sort_by(|(_, one), (_, other)| one.keys().next().cmp(&other.keys().next()));
        let due = aggregates.into_iter().map(|(key, named)| self.fire_each(key, named, cutoff).boxed());
        let followed = changed.into_iter().map(|((source, only), Changed { last, sources })| {
            let follow = async move {
                let is_done = Instant::now() < cutoff && self.follow(&source, only.as_deref(), last, cutoff).await;
                if is_done { Vec::new() } else { sources }
            };
            follow.boxed()
        });
        let all = stream::iter(due.chain(followed).collect::<Vec<_>>()).buffer_unordered(CONCURRENCY);
        failed.extend(all.collect::<Vec<_>>().await.into_iter().flatten());
        failed
    }

    fn read(&self, records: &[QueueRecord]) -> Hints {
        let mut hints = Hints::default();
        for QueueRecord { message_id, body, .. } in records {
            // DynamoDB would reject the read of a row whose key is too long.
            let is_key = |key: &AggregateKey| keys::is_id(&key.aggregate_type) && keys::is_id(&key.id);
            let mut wrong = None;
            match serde_json::from_str(body) {
                Ok(Message::Due(of_message)) => {
                    for deadline in of_message.into_deadlines() {
                        if !is_key(&deadline.key) || !keys::is_id(&deadline.name) {
                            wrong = Some(format!("it names no deadline: {} {}", deadline.key, deadline.name));
                            continue;
                        }
                        let of_aggregate = hints.deadlines.entry(deadline.key.clone()).or_default();
                        of_aggregate.entry(deadline).or_default().push(message_id.clone());
                    }
                }
                Ok(Message::Changed(of_message)) => {
                    let only = of_message.process.clone();
                    for (key, last) in of_message.with_last_events() {
                        if !is_key(&key) {
                            wrong = Some(format!("it names no aggregate: {key}"));
                            continue;
                        }
                        hints.changed.entry((key, only.clone())).or_default().add(last, message_id.clone());
                    }
                }
                Err(error) => wrong = Some(error.to_string()),
            }
            if let Some(reason) = wrong {
                self.count_failed();
                tracing::error!(message_id, reason, "the message cannot be read");
                hints.unreadable.insert(message_id.clone());
            }
        }
        hints
    }

    /// Fires the deadlines of one aggregate, after the dispatches of a process. Returns the messages of those that have to be tried
    /// again.
    async fn fire_each(&self, key: AggregateKey, deadlines: OfAggregate, cutoff: Instant) -> Vec<String> {
        let model = self.registry.get(&key.aggregate_type).filter(|model| !model.sources().is_empty());
        let mut dispatched = None;
        if let Some(model) = model.filter(|_| Instant::now() < cutoff) {
            dispatched = Some(self.dispatch_all(&key, model, cutoff).await);
        }
        let mut again = Vec::new();
        for (deadline, messages) in deadlines {
            let is_done = Instant::now() < cutoff
                && match &dispatched {
                    Some(Err(failure)) => self.end_attempt(&deadline, None, Err(failure.clone())).await,
                    Some(Ok(of)) if !of.deadlines.contains(&deadline.name) => of.again.as_ref() != Some(&deadline.name),
                    _ => self.fire(&deadline, cutoff).await,
                };
            again.extend(if is_done { Vec::new() } else { messages });
        }
        again
    }
}
