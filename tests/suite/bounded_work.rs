//! The work for a request grows no faster than its body, and ends when the result cannot be stored. The tests count calls
//! of the aggregate's code, never time.

use std::sync::atomic::{AtomicUsize, Ordering};

use axum::http::Method;
use daybook_decider::{Aggregate, Commands, Context, Decision, EventType, Message, Registry};
use daybook_local_aws::dynamodb::LocalDynamoDb;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use suite_tests::ApiResponse;

use crate::instance::{Instance, send, settings};

/// An aggregate that counts the calls of its code. Each `N` has its own counts.
struct Worker<const N: usize>;

/// The calls of `decide` and of `evolve`, of each `N`.
static CALLS: [[AtomicUsize; 2]; 3] = [const { [const { AtomicUsize::new(0) }; 2] }; 3];

/// The calls since they were last taken.
fn take_calls(n: usize) -> [usize; 2] {
    [0, 1].map(|kind| CALLS[n][kind].swap(0, Ordering::Relaxed))
}

#[derive(Clone, Default, Serialize, Deserialize, JsonSchema)]
struct State {
    steps: u64,
}

#[derive(Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
enum Command {
    Hire {},
    /// One event with this number of messages and this text.
    Step {
        #[serde(default)]
        messages: usize,
        #[serde(default)]
        text: String,
    },
    Rest {},
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
enum Event {
    WorkerHired {},
    StepMade { messages: usize, text: String },
}

impl<const N: usize> Aggregate for Worker<N> {
    const TYPE: &'static str = "worker";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "Hire", update: None, delete: None };
    const EVENTS: &'static [EventType] = &[EventType::new("WorkerHired", 1), EventType::new("StepMade", 1)];

    type State = State;
    type Command = Command;
    type Event = Event;

    fn decide(_: &State, command: Command, _: &Context<'_, Event>) -> Decision<Event> {
        CALLS[N][0].fetch_add(1, Ordering::Relaxed);
        Ok(match command {
            Command::Hire {} => vec![Event::WorkerHired {}],
            Command::Step { messages, text } => vec![Event::StepMade { messages, text }],
            Command::Rest {} => vec![],
        })
    }

    fn evolve(state: State, _: &Event) -> State {
        CALLS[N][1].fetch_add(1, Ordering::Relaxed);
        State { steps: state.steps + 1 }
    }

    fn announce(_: &State, event: &Event, _: &State) -> Vec<Message> {
        match event {
            Event::WorkerHired {} => vec![],
            Event::StepMade { messages, text } => (0..*messages).map(|_| Message::new("stepMade", text)).collect(),
        }
    }
}

async fn worker<const N: usize>() -> Instance {
    let registry = Registry::new().with::<Worker<N>>().unwrap();
    let instance = Instance::with(LocalDynamoDb::in_memory().await.unwrap(), registry, settings()).await;
    instance.post("/worker", json!({"id": "1"})).await.expect(201);
    take_calls(N);
    instance
}

async fn commands(instance: &Instance, commands: Vec<Value>) -> ApiResponse {
    send(&instance.router, Method::POST, "/worker/1/commands", &[], Some(commands.into())).await
}

fn step(messages: usize, text: &str) -> Value {
    json!({"command": "Step", "data": {"messages": messages, "text": text}})
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_that_exceeds_a_transaction_is_decided_only_up_to_its_limit() {
    let instance = worker::<0>().await;
    // It is decided twice at most, on the cached state and on the state that was read.
    const ATTEMPTS: usize = 2;
    for (batch, decided) in [
        (vec![step(0, ""); 34_000], 100),
        // Messages count too.
        (vec![step(9, ""); 3_000], 10),
        (vec![step(1_000_000, ""); 10], 1),
        // 4 MB, of which each command uses 300 KB for its event and as much for its message.
        (vec![step(1, &"x".repeat(300 * 1024)); 13], 7),
    ] {
        commands(&instance, batch).await.expect_problem(413, "too-large");
        let [decides, evolves] = take_calls(0);
        assert!(decides <= ATTEMPTS * decided, "{decides} calls of decide, {decided} were enough");
        assert!(evolves <= ATTEMPTS * decided, "{evolves} calls of evolve, {decided} were enough");
    }
    assert_eq!(instance.get("/worker/1").await.body["version"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_that_fills_a_transaction_is_accepted() {
    let instance = worker::<1>().await;
    commands(&instance, vec![step(0, ""); 99]).await.expect(200);
    commands(&instance, vec![step(2, ""); 33]).await.expect(200);
    commands(&instance, vec![step(0, ""); 100]).await.expect_problem(413, "too-large");
    assert_eq!(instance.get("/worker/1").await.body["version"], 133);
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_without_an_event_are_each_decided_a_constant_number_of_times() {
    let instance = worker::<2>().await;
    for count in [100, 10_000] {
        let mut batch = vec![json!({"command": "Rest"}); count];
        batch.push(step(0, ""));
        commands(&instance, batch).await.expect(200);
        assert_eq!(take_calls(2)[0], count + 1);
    }
}
