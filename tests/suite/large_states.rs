//! States that have grown too large for an answer: writes go on, and a read says what to do.

use axum::body::{Body, to_bytes};
use axum::http::{Method, Request};
use decider::{Aggregate, Commands, Context, Decision, EventType, Registry};
use local_dynamodb::LocalDynamoDb;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::instance::{Instance, settings};

/// A heap that keeps everything that is put on it, until it is cleared.
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

    fn announce(_: &State, _: &Event, _: &State) -> Vec<decider::Message> {
        vec![]
    }
}

async fn heap() -> Instance {
    let registry = Registry::new().with::<Heap>().unwrap();
    let instance = Instance::with(LocalDynamoDb::in_memory().await.unwrap(), registry, settings()).await;
    assert_eq!(instance.send(Method::POST, "/heap", Some(json!({"id": "1"}))).await.status(), 201);
    instance
}

struct Answer {
    status: u16,
    etag: String,
    replayed: bool,
    text: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap()
    }
}

async fn send(instance: &Instance, method: Method, path: &str, key: Option<&str>, body: Option<Value>) -> Answer {
    let mut request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
    let answer = instance.answer(request.body(body).unwrap()).await;
    let header = |name| answer.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
    let (status, etag) = (answer.status().as_u16(), header("etag").unwrap_or_default());
    let replayed = header("idempotency-replayed").is_some();
    let bytes = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
    Answer { status, etag, replayed, text: String::from_utf8(bytes.into()).unwrap() }
}

async fn put(instance: &Instance, key: Option<&str>, things: &[String]) -> Answer {
    send(instance, Method::POST, "/heap/1", key, Some(json!({ "things": things }))).await
}

/// Text that hardly becomes smaller by packing.
fn noise(bytes: usize) -> String {
    let mut random = fastrand::Rng::with_seed(7);
    std::iter::repeat_with(|| random.alphanumeric()).take(bytes).collect()
}

/// Lambda's limit of a response.
const LIMIT: usize = 6 * 1024 * 1024;

#[tokio::test(flavor = "multi_thread")]
async fn a_state_too_large_for_an_answer_stops_no_write() {
    let instance = heap().await;
    // Quotes take twice their room in Lambda's response.
    let things = vec!["\"".repeat(190 * 1024); 3];
    let mut left_out = 0;
    for round in 1..=3 {
        let answer = put(&instance, None, &things).await;
        assert_eq!((answer.status, &answer.etag), (200, &format!("\"{}\"", 1 + round * 3)));
        assert!(serde_json::to_string(&answer.text).unwrap().len() < LIMIT);
        left_out += usize::from(answer.json().get("state").is_none());
        assert_eq!(answer.json()["events"].as_array().unwrap().len(), 3);
    }
    assert_eq!(left_out, 2);
    // Written all the same, and under a key too.
    let keyed = put(&instance, Some("k"), &["one more".to_owned()]).await;
    assert_eq!((keyed.status, keyed.etag.as_str(), keyed.json().get("state")), (200, "\"11\"", None));
    let again = put(&instance, Some("k"), &["one more".to_owned()]).await;
    assert_eq!((again.replayed, again.text), (true, keyed.text));

    for path in ["/heap/1", "/heap/1?rebuild=true", "/heap/1?version=11"] {
        let read = send(&instance, Method::GET, path, None, None).await;
        assert_eq!((read.status, &read.json()["type"]), (413, &json!("urn:daybook:problem:too-large")));
        assert!(read.json()["detail"].as_str().unwrap().contains("/events"), "{}", read.text);
    }
    // As it was while it was small, its events, and that nothing is new: these have answers.
    assert_eq!(send(&instance, Method::GET, "/heap/1?version=1", None, None).await.status, 200);
    assert_eq!(send(&instance, Method::GET, "/heap/1/events?after=10", None, None).await.status, 200);
    let known = Request::get("/heap/1").header("if-none-match", "\"11\"").body(Body::empty()).unwrap();
    assert_eq!(instance.answer(known).await.status(), 304);

    // And the way out is open.
    let clear = json!({"command": "Clear"});
    let cleared = send(&instance, Method::POST, "/heap/1/commands", None, Some(clear)).await;
    assert_eq!((cleared.status, &cleared.json()["state"]), (200, &json!({"things": []})));
    assert_eq!(send(&instance, Method::GET, "/heap/1", None, None).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_too_large_to_be_kept_under_a_key_is_left_out_of_every_answer_to_it() {
    let instance = heap().await;
    let things = vec![noise(300 * 1024); 2];
    assert!(put(&instance, None, &things).await.json()["state"].is_object());
    instance.wire.take_calls();
    let keyed = put(&instance, Some("k"), &["small".to_owned()]).await;
    assert_eq!((keyed.status, keyed.json().get("state")), (200, None));
    // It still takes one call.
    assert_eq!(instance.wire.take_calls().len(), 1);
    let again = put(&instance, Some("k"), &["small".to_owned()]).await;
    assert_eq!((again.replayed, &again.text, again.etag), (true, &keyed.text, keyed.etag));
    // Without a key there is nothing to keep.
    assert!(put(&instance, None, &["small".to_owned()]).await.json()["state"].is_object());
}

#[tokio::test(flavor = "multi_thread")]
async fn events_too_large_to_be_answered_are_not_written() {
    let instance = heap().await;
    // Each a character in the table and four in Lambda's response.
    let things = vec!["\\".repeat(190 * 1024); 10];
    let over = put(&instance, None, &things).await;
    assert_eq!((over.status, &over.json()["type"]), (413, &json!("urn:daybook:problem:too-large")));
    assert_eq!(send(&instance, Method::GET, "/heap/1", None, None).await.etag, "\"1\"");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_stops_no_write_that_would_be_done_without_one() {
    let instance = heap().await;
    // More than can be kept, even packed; and what packs well and leaves a transaction no room for it.
    let three = [300, 301, 302].map(|kilobytes| noise(kilobytes * 1024));
    let full: Vec<_> = vec!["x".repeat(370 * 1024); 11].into_iter().chain([noise(21 * 1024)]).collect();
    for (key, things, version) in [("a", &three[..], "\"4\""), ("b", &full, "\"16\"")] {
        instance.wire.take_calls();
        let keyed = put(&instance, Some(key), things).await;
        assert_eq!((keyed.status, keyed.etag.as_str()), (200, version), "{:.300}", keyed.text);
        assert_eq!(keyed.text, format!(r#"{{"id":"1","version":{}}}"#, version.trim_matches('"')));
        assert_eq!(instance.wire.take_calls().len(), 1);
        let again = put(&instance, Some(key), things).await;
        assert_eq!((again.replayed, again.status, &again.text, &again.etag), (true, 200, &keyed.text, &keyed.etag));
    }
    // The events are there all the same.
    let events = send(&instance, Method::GET, "/heap/1/events?after=1&limit=3", None, None).await.json();
    let written: Vec<_> = events["events"].as_array().unwrap().iter().map(|event| &event["data"]["thing"]).collect();
    assert_eq!(written, three.each_ref().map(|thing| thing.as_str()));
    // What is too large without a key is too large with one, and a smaller answer is no way round that.
    let over = vec!["x".repeat(46_500); 90];
    for key in [None, Some("c")] {
        let refused = put(&instance, key, &over).await;
        assert_eq!((refused.status, &refused.json()["type"]), (413, &json!("urn:daybook:problem:too-large")));
        assert!(refused.json()["detail"].as_str().unwrap().contains("a transaction holds"), "{}", refused.text);
    }
    let events = send(&instance, Method::GET, "/heap/1/events?after=16", None, None).await.json();
    assert_eq!(events["events"], json!([]));
}
