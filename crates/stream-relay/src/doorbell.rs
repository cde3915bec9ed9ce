//! The queue of the projector: says which aggregates have new events.

use std::collections::BTreeMap;

use daybook_function_runtime::with_causes;
use daybook_table::{AggregateKey, ChangedAggregates};
use futures_util::future::join_all;
use tokio::time::{Instant, sleep};

use crate::message::Moved;
use crate::record::Coordinates;
use crate::settings::RetryPolicy;

/// Maximum aggregates of one message. With ids of the maximum length, it has some 30 KB; SQS charges 64 KB as one
/// request.
const MAX_AGGREGATES: usize = 100;

/// The queue of the projector.
#[derive(Clone, Debug)]
pub(crate) struct Doorbell {
    /// A client that does not retry by itself.
    pub(crate) client: aws_sdk_sqs::Client,
    pub(crate) url: String,
    pub(crate) retry: RetryPolicy,
}

/// The result of ringing.
#[derive(Debug, Default)]
pub(crate) struct Rung {
    /// The number of aggregates that the queue accepted.
    pub(crate) aggregates: usize,
    /// The records of the other aggregates.
    pub(crate) unsettled: Vec<Coordinates>,
}

impl Doorbell {
    /// Sends the aggregates to the queue. Tries again until `cutoff`.
    pub(crate) async fn ring(&self, moved: BTreeMap<AggregateKey, Moved>, cutoff: Instant) -> Rung {
        let moved: Vec<_> = moved.into_iter().collect();
        let sent = join_all(moved.chunks(MAX_AGGREGATES).map(|chunk| self.send(chunk, cutoff))).await;
        let mut rung = Rung::default();
        for (chunk, sent) in moved.chunks(MAX_AGGREGATES).zip(sent) {
            if sent {
                rung.aggregates += chunk.len();
            } else {
                rung.unsettled.extend(chunk.iter().flat_map(|(_, moved)| moved.records.clone()));
            }
        }
        rung
    }

    async fn send(&self, chunk: &[(AggregateKey, Moved)], cutoff: Instant) -> bool {
        let changed: ChangedAggregates = chunk.iter().map(|(key, moved)| (key.clone(), moved.last)).collect();
        let body = serde_json::to_string(&changed).expect("texts have a JSON form");
        let mut attempts = 1;
        while Instant::now() < cutoff {
            let send = self.client.send_message().queue_url(&self.url).message_body(&body).send();
            match tokio::time::timeout_at(cutoff, send).await {
                Ok(Ok(_)) => return true,
                Ok(Err(error)) => {
                    tracing::warn!(
                        aggregates = chunk.len(),
                        error = with_causes(&error),
                        "could not ring the projector"
                    );
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
