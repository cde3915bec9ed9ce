//! The functions that a stream invokes.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use daybook_event_source_mapping::InvocationOutcome;
use daybook_snapshotter::Snapshotter;
use daybook_stream_relay::Relay;
use futures_util::FutureExt;
use tokio::time::Instant;

/// A function that a stream invokes as Lambda does: with a JSON event, for a JSON response.
#[derive(Clone)]
pub(super) enum StreamFunction {
    Relay(Arc<Relay>),
    Snapshotter(Arc<Snapshotter>),
}

impl StreamFunction {
    /// Invokes the function. A time-out or a panic ends the invocation, as in Lambda.
    pub(super) async fn invoke(&self, payload: String, timeout: Duration) -> InvocationOutcome {
        let response = async {
            let (batch, deadline) = (serde_json::from_str(&payload)?, Instant::now() + timeout);
            let response = match self {
                Self::Relay(relay) => relay.handle(batch, deadline).await?,
                Self::Snapshotter(snapshotter) => snapshotter.handle(batch, deadline).await?,
            };
            Ok(serde_json::to_string(&response)?)
        };
        // Unwind safety: the next invocation loads its data again.
        let response = AssertUnwindSafe(response).catch_unwind();
        let error: Box<dyn std::error::Error + Send + Sync> = match tokio::time::timeout(timeout, response).await {
            Ok(Ok(Ok(response))) => return InvocationOutcome::Returned(response),
            Ok(Ok(Err(error))) => error,
            Ok(Err(_panic)) => "it panicked".into(),
            Err(_) => format!("it timed out after {timeout:?}").into(),
        };
        tracing::error!(function = self.name(), error, "the function failed");
        InvocationOutcome::FunctionError
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Relay(_) => "stream-relay",
            Self::Snapshotter(_) => "snapshotter",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use daybook_decider::{Aggregate, Commands, Context, Decision, EventType, Registry};
    use daybook_event_store::cache::Cache;
    use daybook_table::AggregateKey;
    use daybook_test_support::commands::execute;
    use daybook_test_support::stream_record;
    use daybook_test_support::table::TestTable;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};
    use serde_json::json;

    use super::*;

    /// An aggregate whose state can panic when the store drops it, which the decider does not catch.
    struct Overflow;

    static PANICS: AtomicBool = AtomicBool::new(false);

    #[derive(Clone, Default, Serialize, Deserialize, JsonSchema)]
    struct State {
        count: u32,
    }

    impl Drop for State {
        fn drop(&mut self) {
            assert!(self.count == 0 || !PANICS.load(Ordering::Relaxed), "the state after the first event panics");
        }
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
            State { count: state.count + 1 }
        }
    }

    #[tokio::test]
    async fn invocation_that_panics_returns_a_function_error() {
        let table = TestTable::new().await;
        let registry = Registry::new().with::<Overflow>().unwrap();
        let (model, key) = (registry.get("overflow").unwrap(), AggregateKey::new("overflow", "1"));
        execute(&table.direct_store(), model, &key, &[("Count", json!({}))]).await.unwrap();

        // Nothing is cached, so the state is dropped at the end of an invocation.
        let store = table.store().with_cache(Cache::bounded(0, 0));
        let function = StreamFunction::Snapshotter(Arc::new(Snapshotter::new(registry, store)));
        let image = json!({
            "pk": {"S": key.pk()}, "sk": {"S": "EVENT#000000000001"}, "snapshotDue": {"BOOL": true},
        });
        let due = json!({"Records": [stream_record::insert(1, image)]});
        PANICS.store(true, Ordering::Relaxed);
        assert_eq!(function.invoke(due.to_string(), Duration::from_secs(60)).await, InvocationOutcome::FunctionError);
        PANICS.store(false, Ordering::Relaxed);
        let expected = InvocationOutcome::Returned(r#"{"batchItemFailures":[]}"#.to_owned());
        assert_eq!(function.invoke(due.to_string(), Duration::from_secs(60)).await, expected);
    }
}
