//! The changes queue, from which the projector learns which aggregates have new events.

use std::collections::BTreeMap;

use daybook_function_runtime::with_causes;
use daybook_table::{AggregateKey, ChangedAggregates};
use futures_util::future::join_all;
use tokio::time::{Instant, sleep};

use crate::clients::SqsClient;
use crate::message::Moved;
use crate::record::Coordinates;
use crate::settings::RetryPolicy;

#[derive(Clone, Debug)]
pub(crate) struct ChangesQueue {
    /// A client that does not retry by itself.
    pub(crate) client: SqsClient,
    pub(crate) url: String,
    pub(crate) retry: RetryPolicy,
}

/// The result of sending changed aggregates.
#[derive(Debug, Default)]
pub(crate) struct SentChanges {
    /// The number of aggregates that the queue accepted.
    pub(crate) aggregates: usize,
    /// Their records.
    pub(crate) settled: Vec<Coordinates>,
    /// The records of the other aggregates.
    pub(crate) unsettled: Vec<Coordinates>,
}

impl ChangesQueue {
    /// Sends the aggregates to the queue, with retries until `cutoff`.
    pub(crate) async fn send(&self, mut moved: BTreeMap<AggregateKey, Moved>, cutoff: Instant) -> SentChanges {
        let last_events = moved.iter().map(|(key, moved)| (key.clone(), moved.last)).collect();
        let messages = ChangedAggregates::messages(&last_events);
        let accepted = join_all(messages.iter().map(|message| self.send_message(message.to_body(), cutoff))).await;
        let mut sent = SentChanges::default();
        for (message, is_accepted) in messages.into_iter().zip(accepted) {
            let records: Vec<_> = message.keys().filter_map(|key| moved.remove(&key)).map(|of| of.records).collect();
            sent.aggregates += if is_accepted { records.len() } else { 0 };
            let list = if is_accepted { &mut sent.settled } else { &mut sent.unsettled };
            list.extend(records.into_iter().flatten());
        }
        sent
    }

    /// Sends a message, with retries until `cutoff`. Returns whether the queue accepted it.
    async fn send_message(&self, body: String, cutoff: Instant) -> bool {
        let mut attempts = 1;
        while Instant::now() < cutoff {
            let send = self.client.send_message().queue_url(&self.url).message_body(&body).send();
            match tokio::time::timeout_at(cutoff, send).await {
                Ok(Ok(_)) => return true,
                Ok(Err(error)) => {
                    tracing::warn!(error = with_causes(&error), "could not send to the changes queue");
                    let wait = self.retry.wait(attempts);
                    if Instant::now() + wait >= cutoff {
                        return false;
                    }
                    sleep(wait).await;
                    attempts += 1;
                }
                Err(_elapsed) => return false,
            }
        }
        false
    }
}
