//! A stream function behind its event source mapping.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use daybook_event_source_mapping::template::StreamEvent;
use daybook_event_source_mapping::{Batch, InvocationOutcome, Mapping, Record, Source, Step};
use daybook_snapshotter::Snapshotter;
use daybook_stream_relay::Relay;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use serde_json::Value;
use tokio::sync::mpsc::Receiver;
use tokio::time::Instant;

/// The functions that a stream invokes, as Lambda has them: JSON in, JSON out.
#[derive(Clone)]
pub(super) enum Function {
    Relay(Arc<Relay>),
    Snapshotter(Arc<Snapshotter>),
}

impl Function {
    /// One invocation. It ends at `timeout`, and with a panic, as it would in Lambda.
    async fn invoke(&self, payload: String, timeout: Duration) -> InvocationOutcome {
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
        // Whatever it was about is loaded anew by the next one.
        let answer = AssertUnwindSafe(answer).catch_unwind();
        match tokio::time::timeout(timeout, answer).await {
            Ok(Ok(Ok(response))) => InvocationOutcome::Returned(response),
            Ok(Err(_panic)) => {
                tracing::error!(function = self.name(), "the function panicked");
                InvocationOutcome::FunctionError
            }
            Ok(Ok(Err(error))) => {
                let error: Box<dyn std::error::Error + Send + Sync> = error;
                tracing::error!(function = self.name(), error, "the function failed");
                InvocationOutcome::FunctionError
            }
            Err(_) => {
                tracing::error!(function = self.name(), ?timeout, "the function ran out of time");
                InvocationOutcome::FunctionError
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
        let mut running: FuturesUnordered<BoxFuture<'_, (Batch, InvocationOutcome)>> = FuturesUnordered::new();
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
                        self.discards.push(discarded.document(&source));
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

    async fn invoke(&self, batch: Batch) -> (Batch, InvocationOutcome) {
        let outcome = self.function.invoke(batch.payload(), self.timeout).await;
        (batch, outcome)
    }
}

/// The time since 1970, which is what the mapping reckons in.
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use daybook_decider::{
        Aggregate, CommandRequest, Commands, Context, Decision, DecisionInput, EventType, Json, Meta, Registry,
    };
    use daybook_event_store::{EventStore, StoreSettings};
    use daybook_local_aws::dynamodb::LocalDynamoDb;
    use daybook_table::AggregateKey;
    use jiff::Timestamp;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};
    use serde_json::json;
    use ulid::Ulid;

    use super::*;

    /// Counts, until its rules have a fault.
    struct Overflow;

    static FAULTY: AtomicBool = AtomicBool::new(false);

    #[derive(Clone, Default, Serialize, Deserialize, JsonSchema)]
    struct State {
        count: u32,
    }

    #[derive(Deserialize, JsonSchema)]
    #[serde(tag = "command", content = "data", deny_unknown_fields)]
    enum Command {
        Count {},
    }

    #[derive(Clone, Serialize, Deserialize, JsonSchema)]
    #[serde(tag = "type", content = "data")]
    enum Event {
        Counted {},
    }

    impl Aggregate for Overflow {
        const TYPE: &'static str = "overflow";
        const STATE_VERSION: u32 = 1;
        const COMMANDS: Commands = Commands { create: "Count", update: None, delete: None };
        const EVENTS: &'static [EventType] = &[EventType::new("Counted", 1)];

        type State = State;
        type Command = Command;
        type Event = Event;

        fn decide(_: &State, Command::Count {}: Command, _: &Context<'_, Event>) -> Decision<Event> {
            Ok(vec![Event::Counted {}])
        }

        fn evolve(state: State, Event::Counted {}: &Event) -> State {
            assert!(!FAULTY.load(Ordering::Relaxed), "a fault in the rules");
            State { count: state.count + 1 }
        }
    }

    #[tokio::test]
    async fn a_panic_is_a_failed_invocation() {
        let engine = LocalDynamoDb::in_memory().await.unwrap();
        let settings = StoreSettings::new("daybook-test");
        let store = EventStore::new(&daybook_function_runtime::aws_config_at(engine.url()), settings.clone());
        store.admin().create_table().await.unwrap();
        let registry = Registry::new().with::<Overflow>().unwrap();
        let (model, key) = (registry.get("overflow").unwrap(), AggregateKey::new("overflow", "1"));
        let circumstances = DecisionInput { now: Timestamp::now(), seed: Ulid::generate(), meta: Meta::default() };
        let count = CommandRequest { command: "Count".to_owned(), data: Json::of(&json!({})).unwrap() };
        let decided = model.decide(&model.before_first_event(), "1", &[count], &circumstances).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        store.append(model, &key, 0, &decided, None, deadline).await.unwrap();

        let cold = EventStore::new(&daybook_function_runtime::aws_config_at(engine.url()), settings);
        let function = Function::Snapshotter(Arc::new(Snapshotter::new(registry, cold)));
        let keys = json!({"pk": {"S": key.pk()}, "sk": {"S": "EVENT#000000000001"}});
        let mut image = keys.clone();
        image["snapshotDue"] = json!({"BOOL": true});
        let due = json!({"Records": [{
            "eventID": "1", "eventName": "INSERT", "eventVersion": "1.1", "eventSource": "aws:dynamodb",
            "awsRegion": "eu-west-1", "eventSourceARN": "arn:aws:dynamodb:eu-west-1:000000000000:table/t/stream/1",
            "dynamodb": {
                "ApproximateCreationDateTime": 1_700_000_000, "Keys": keys, "NewImage": image,
                "SequenceNumber": "1", "SizeBytes": 26, "StreamViewType": "NEW_IMAGE",
            },
        }]});
        FAULTY.store(true, Ordering::Relaxed);
        assert_eq!(function.invoke(due.to_string(), Duration::from_secs(60)).await, InvocationOutcome::FunctionError);
        FAULTY.store(false, Ordering::Relaxed);
        let answer = InvocationOutcome::Returned(r#"{"batchItemFailures":[]}"#.to_owned());
        assert_eq!(function.invoke(due.to_string(), Duration::from_secs(60)).await, answer);
    }
}
