//! States that are too large for a response: writes still succeed, and reads return a problem with instructions.

use axum::http::Method;
use daybook_decider::{Aggregate, Commands, Context, Decision, EventType, Registry};
use daybook_local_aws::dynamodb::LocalDynamoDb;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use suite_tests::Answer;

use crate::instance::{Instance, send, settings};

/// An aggregate that stores all things that are put on it, until it is cleared.
struct Heap;

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
struct State {
    things: Vec<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
enum Command {
    Start {},
    Put { things: Vec<String> },
    Clear {},
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
enum Event {
    HeapStarted {},
    ThingPut { thing: String },
    HeapCleared {},
}

impl Aggregate for Heap {
    const TYPE: &'static str = "heap";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "Start", update: Some("Put"), delete: None };
    const EVENTS: &'static [EventType] =
        &[EventType::new("HeapStarted", 1), EventType::new("ThingPut", 1), EventType::new("HeapCleared", 1)];

    type State = State;
    type Command = Command;
    type Event = Event;

    fn decide(_: &State, command: Command, _: &Context<'_, Event>) -> Decision<Event> {
        Ok(match command {
            Command::Start {} => vec![Event::HeapStarted {}],
            Command::Put { things } => things.into_iter().map(|thing| Event::ThingPut { thing }).collect(),
            Command::Clear {} => vec![Event::HeapCleared {}],
        })
    }

    fn evolve(mut state: State, event: &Event) -> State {
        match event {
            Event::HeapStarted {} => state,
            Event::ThingPut { thing } => {
                state.things.push(thing.clone());
                state
            }
            Event::HeapCleared {} => State::default(),
        }
    }

    fn announce(_: &State, _: &Event, _: &State) -> Vec<daybook_decider::Message> {
        vec![]
    }
}

async fn heap() -> Instance {
    let registry = Registry::new().with::<Heap>().unwrap();
    let instance = Instance::with(LocalDynamoDb::in_memory().await.unwrap(), registry, settings()).await;
    instance.post("/heap", json!({"id": "1"})).await.expect(201);
    instance
}

async fn put(instance: &Instance, key: Option<&str>, things: &[String]) -> Answer {
    let key: Vec<_> = key.map(|key| ("idempotency-key", key)).into_iter().collect();
    send(&instance.router, Method::POST, "/heap/1", &key, Some(json!({ "things": things }))).await
}

/// Text that hardly compresses.
fn noise(bytes: usize) -> String {
    let mut random = fastrand::Rng::with_seed(7);
    std::iter::repeat_with(|| random.alphanumeric()).take(bytes).collect()
}

/// Lambda's limit for a response.
const LIMIT: usize = 6 * 1024 * 1024;

#[tokio::test(flavor = "multi_thread")]
async fn command_with_a_state_too_large_for_a_response_is_executed() {
    let instance = heap().await;
    // In Lambda's response, a quote takes two characters.
    let things = vec!["\"".repeat(190 * 1024); 3];
    let mut left_out = 0;
    for round in 1..=3 {
        let answer = put(&instance, None, &things).await;
        assert_eq!((answer.status.as_u16(), answer.header("etag")), (200, &*format!("\"{}\"", 1 + round * 3)));
        assert!(serde_json::to_string(&answer.text).unwrap().len() < LIMIT);
        left_out += usize::from(answer.body.get("state").is_none());
        assert_eq!(answer.body["events"].as_array().unwrap().len(), 3);
    }
    assert_eq!(left_out, 2);
    // The command is executed, with a key too.
    let keyed = put(&instance, Some("k"), &["one more".to_owned()]).await;
    assert_eq!((keyed.status.as_u16(), keyed.header("etag"), keyed.body.get("state")), (200, "\"11\"", None));
    let again = put(&instance, Some("k"), &["one more".to_owned()]).await;
    assert_eq!((again.header("idempotency-replayed"), &again.text), ("true", &keyed.text));

    for path in ["/heap/1", "/heap/1?rebuild=true", "/heap/1?version=11"] {
        let read = instance.get(path).await.expect_problem(413, "too-large");
        assert!(read.body["detail"].as_str().unwrap().contains("/events"), "{}", read.text);
    }
    // An earlier version, the events and a `304` are still returned.
    instance.get("/heap/1?version=1").await.expect(200);
    instance.get("/heap/1/events?after=10").await.expect(200);
    send(&instance.router, Method::GET, "/heap/1", &[("if-none-match", "\"11\"")], None).await.expect(304);

    // The state can be cleared.
    let cleared = instance.post("/heap/1/commands", json!({"command": "Clear"})).await.expect(200);
    assert_eq!(cleared.body["state"], json!({"things": []}));
    instance.get("/heap/1").await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn keyed_response_with_a_too_large_state_is_stored_and_returned_without_it() {
    let instance = heap().await;
    let things = vec![noise(300 * 1024); 2];
    assert!(put(&instance, None, &things).await.body["state"].is_object());
    instance.wire.take_calls();
    let keyed = put(&instance, Some("k"), &["small".to_owned()]).await.expect(200);
    assert_eq!(keyed.body.get("state"), None);
    // The command still takes one call.
    assert_eq!(instance.wire.take_calls().len(), 1);
    let again = put(&instance, Some("k"), &["small".to_owned()]).await;
    assert_eq!((again.header("idempotency-replayed"), &again.text), ("true", &keyed.text));
    assert_eq!(again.header("etag"), keyed.header("etag"));
    // Without a key, no response is stored.
    assert!(put(&instance, None, &["small".to_owned()]).await.body["state"].is_object());
}

#[tokio::test(flavor = "multi_thread")]
async fn command_with_events_too_large_for_a_response_appends_nothing() {
    let instance = heap().await;
    // A backslash is one character in the table and four in Lambda's response.
    let things = vec!["\\".repeat(190 * 1024); 10];
    put(&instance, None, &things).await.expect_problem(413, "too-large");
    assert_eq!(instance.get("/heap/1").await.header("etag"), "\"1\"");
}

#[tokio::test(flavor = "multi_thread")]
async fn command_with_a_key_is_executed_whenever_it_is_without_one() {
    let instance = heap().await;
    // A response that is too large to store even compressed, and one that compresses well but does not fit into the transaction.
    let three = [300, 301, 302].map(|kilobytes| noise(kilobytes * 1024));
    let full: Vec<_> = vec!["x".repeat(370 * 1024); 11].into_iter().chain([noise(21 * 1024)]).collect();
    for (key, things, version) in [("a", &three[..], "\"4\""), ("b", &full, "\"16\"")] {
        instance.wire.take_calls();
        let keyed = put(&instance, Some(key), things).await.expect(200);
        assert_eq!(keyed.header("etag"), version);
        assert_eq!(keyed.text, format!(r#"{{"id":"1","version":{}}}"#, version.trim_matches('"')));
        assert_eq!(instance.wire.take_calls().len(), 1);
        let again = put(&instance, Some(key), things).await.expect(200);
        assert_eq!((again.header("idempotency-replayed"), &again.text), ("true", &keyed.text));
        assert_eq!(again.header("etag"), version);
    }
    // The events are stored.
    let events = instance.get("/heap/1/events?after=1&limit=3").await.body;
    let written: Vec<_> = events["events"].as_array().unwrap().iter().map(|event| &event["data"]["thing"]).collect();
    assert_eq!(written, three.each_ref().map(|thing| thing.as_str()));
    // A command that is too large without a key is also too large with one, although its response would be smaller.
    let over = vec!["x".repeat(46_500); 90];
    for key in [None, Some("c")] {
        let refused = put(&instance, key, &over).await.expect_problem(413, "too-large");
        assert!(refused.body["detail"].as_str().unwrap().contains("a transaction holds"), "{}", refused.text);
    }
    assert_eq!(instance.get("/heap/1/events?after=16").await.body["events"], json!([]));
}
