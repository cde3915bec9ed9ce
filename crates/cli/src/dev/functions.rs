//! A stream function behind its event source mapping.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use event_source_mapping::template::StreamEvent;
use event_source_mapping::{Batch, Mapping, Outcome, Record, Source, Step};
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use serde_json::Value;
use snapshotter::Snapshotter;
use stream_relay::Relay;
use tokio::sync::mpsc::Receiver;
use tokio::time::Instant;

/// The functions that a stream invokes, as Lambda has them: JSON in, JSON out.
#[derive(Clone)]
pub(super) enum Function {
    Relay(Arc<Relay>),
    Snapshotter(Arc<Snapshotter>),
}

impl Function {
    /// One invocation, ended at `timeout` as Lambda would.
    async fn invoke(&self, payload: String, timeout: Duration) -> Outcome {
        let answer = async {
            match self {
                Self::Relay(relay) => {
                    let batch = serde_json::from_str(&payload)?;
                    serde_json::to_string(&relay.handle(batch, Instant::now() + timeout).await?).map_err(Into::into)
                }
                Self::Snapshotter(snapshotter) => {
                    let batch = serde_json::from_str(&payload)?;
                    serde_json::to_string(&snapshotter.handle(batch, Instant::now() + timeout).await?)
                        .map_err(Into::into)
                }
            }
        };
        match tokio::time::timeout(timeout, answer).await {
            Ok(Ok(response)) => Outcome::Returned(response),
            Ok(Err(error)) => {
                let error: Box<dyn std::error::Error + Send + Sync> = error;
                tracing::error!(function = self.name(), error, "the function failed");
                Outcome::FunctionError
            }
            Err(_) => {
                tracing::error!(function = self.name(), ?timeout, "the function ran out of time");
                Outcome::FunctionError
            }
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Relay(_) => "stream-relay",
            Self::Snapshotter(_) => "snapshotter",
        }
    }
}

/// What the mappings gave up, as the on-failure destination gets it.
#[derive(Clone, Default)]
pub(super) struct Discards(Arc<Mutex<Vec<Value>>>);

impl Discards {
    pub(super) fn all(&self) -> Vec<Value> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn push(&self, discarded: Value) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(discarded);
    }
}

/// A mapping of one shard to one function.
pub(super) struct Worker {
    pub(super) function: Function,
    pub(super) timeout: Duration,
    pub(super) event: StreamEvent,
    pub(super) stream_arn: String,
    pub(super) shard: String,
    pub(super) discards: Discards,
}

impl Worker {
    /// Does what the mapping says with the records that come in, until no more can come and all of them are done with.
    pub(super) async fn run(self, mut records: Receiver<Record>) {
        let mut mapping = Mapping::new(self.event.settings.clone());
        let mut running: FuturesUnordered<BoxFuture<'_, (Batch, Outcome)>> = FuturesUnordered::new();
        let mut ended = false;
        loop {
            let wake = loop {
                match mapping.poll(now()) {
                    Step::Invoke(batch) => running.push(Box::pin(self.invoke(batch))),
                    Step::Discard(discarded) => {
                        let source = Source {
                            function_arn: self.function.name(),
                            stream_arn: &self.stream_arn,
                            shard_id: &self.shard,
                            request_id: "daybook-dev",
                        };
                        tracing::error!(function = self.function.name(), reason = ?discarded.reason, "records discarded");
                        self.discards.push(discarded.metadata_with_payload(&source));
                    }
                    Step::Wait { until } => break until,
                }
            };
            if ended && running.is_empty() && wake.is_none() {
                return;
            }
            let woken = async {
                match wake {
                    Some(until) => tokio::time::sleep(until.saturating_sub(now())).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some((batch, outcome)) = running.next(), if !running.is_empty() => mapping.settle(batch, outcome, now()),
                record = records.recv(), if !ended => match record {
                    // A record that is refused is one that a reader, starting over, sent before.
                    Some(record) => drop(mapping.push(record, now())),
                    None => ended = true,
                },
                () = woken => {}
            }
        }
    }

    async fn invoke(&self, batch: Batch) -> (Batch, Outcome) {
        let outcome = self.function.invoke(batch.payload(), self.timeout).await;
        (batch, outcome)
    }
}

/// The time since 1970, which is what the mapping reckons in.
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
