//! The functions that are invoked with events, as an HTTP service, with the requests of the stack to all functions.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, Path};
use axum::http::StatusCode;
use axum::routing::{post, put};
use axum::{Json, Router};
use daybook_function_runtime::with_causes;
use daybook_local_aws::clock::{Ahead, LocalClock};
use daybook_projector::Projector;
use daybook_reactor::Reactor;
use daybook_snapshotter::Snapshotter;
use daybook_stream_relay::Relay;
use futures_util::FutureExt;
use tokio::time::Instant;

use crate::usage::UsageMeter;

pub(super) enum Handler {
    Relay(Relay),
    Snapshotter(Snapshotter),
    Projector(Projector),
    Reactor(Reactor),
}

impl Handler {
    async fn handle(&self, event: &str, deadline: Instant) -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
        Ok(match self {
            Self::Relay(relay) => serde_json::to_string(&relay.handle(serde_json::from_str(event)?, deadline).await?),
            Self::Snapshotter(snapshotter) => {
                serde_json::to_string(&snapshotter.handle(serde_json::from_str(event)?, deadline).await?)
            }
            Self::Projector(projector) => {
                serde_json::to_string(&projector.handle(serde_json::from_str(event)?, deadline).await)
            }
            Self::Reactor(reactor) => {
                serde_json::to_string(&reactor.handle(serde_json::from_str(event)?, deadline).await)
            }
        }?)
    }
}

pub(super) type Handlers = BTreeMap<&'static str, Handler>;

/// `POST /invocations/NAME/MILLISECONDS` invokes a function, whose time is limited. `POST /usage` returns the counted calls, and
/// begins to count anew. `PUT /clock` moves the clock, if it is in another process than that of the stack.
pub(super) fn router(handlers: Handlers, meter: UsageMeter, clock: LocalClock) -> Router {
    let handlers = Arc::new(handlers);
    let invoke = async move |Path((name, timeout_ms)): Path<(String, u64)>, event: String| {
        invoke(&handlers, &name, &event, Duration::from_millis(timeout_ms)).await
    };
    Router::new()
        .route("/invocations/{name}/{timeout_ms}", post(invoke))
        .route("/usage", post(async move || Json(meter.take())))
        .route("/clock", put(async move |Json(ahead): Json<Ahead>| clock.advance_to(ahead)))
        // The size of an event has no limit: the event source mapping has made it.
        .layer(DefaultBodyLimit::disable())
}

async fn invoke(handlers: &Handlers, name: &str, event: &str, timeout: Duration) -> (StatusCode, String) {
    let Some(handler) = handlers.get(name) else {
        return (StatusCode::NOT_FOUND, format!("there is no function {name}"));
    };
    // Unwind safety: the next invocation loads its data again.
    match AssertUnwindSafe(handler.handle(event, Instant::now() + timeout)).catch_unwind().await {
        Ok(Ok(response)) => (StatusCode::OK, response),
        Ok(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, with_causes(&*error)),
        Err(_panic) => (StatusCode::INTERNAL_SERVER_ERROR, "it panicked".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use daybook_decider::{Aggregate, Commands, Context, Decision, EventType, Registry};
    use daybook_event_source_mapping::InvocationOutcome;
    use daybook_event_store::cache::Cache;
    use daybook_table::{AggregateKey, keys};
    use daybook_test_support::commands::execute;
    use daybook_test_support::stream_record;
    use daybook_test_support::table::TestTable;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};
    use serde_json::json;

    use super::*;
    use crate::functions::{Functions, FunctionsVersion};

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
        let function = {
            let handlers = Handlers::from([("snapshotter", Handler::Snapshotter(Snapshotter::new(registry, store)))]);
            let router = router(handlers, UsageMeter::default(), LocalClock::default());
            Functions::new(FunctionsVersion::new(Router::new(), router, None), None).function("snapshotter")
        };
        let image = json!({
            "pk": {"S": keys::pk(&key)}, "sk": {"S": "EVENT#000000000001"}, "snapshotDue": {"BOOL": true},
        });
        let due = json!({"Records": [stream_record::insert(1, image)]});
        PANICS.store(true, Ordering::Relaxed);
        assert_eq!(
            function.invoke(due.to_string(), Duration::from_secs(60), None).await,
            InvocationOutcome::FunctionError
        );
        PANICS.store(false, Ordering::Relaxed);
        let expected = InvocationOutcome::Returned(r#"{"batchItemFailures":[]}"#.to_owned());
        assert_eq!(function.invoke(due.to_string(), Duration::from_secs(60), None).await, expected);
    }
}
