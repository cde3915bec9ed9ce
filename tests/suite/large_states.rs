//! States that are too large for a response: writes still succeed, and reads return a problem with instructions.

use axum::http::Method;
use daybook_decider::{Aggregate, Commands, Context, Decision, EventType, Json, Registry};
use daybook_local_aws::dynamodb::LocalDynamoDb;
use daybook_test_support::notebook::Notebook;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use suite_tests::ApiResponse;

use crate::instance::{Instance, send, settings};

async fn notebook() -> Instance {
    let registry = Registry::new().with::<Notebook>().unwrap();
    let instance = Instance::with(LocalDynamoDb::in_memory().await.unwrap(), registry, settings()).await;
    instance.post("/notebook", json!({"id": "1", "lines": [""]})).await.expect(201);
    instance
}

async fn write(instance: &Instance, key: Option<&str>, lines: &[String]) -> ApiResponse {
    let key: Vec<_> = key.map(|key| ("idempotency-key", key)).into_iter().collect();
    send(&instance.router, Method::POST, "/notebook/1", &key, Some(json!({ "lines": lines }))).await
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
    let instance = notebook().await;
    // A quote takes two bytes in the body, and four in Lambda's response, which contains the body as a JSON string.
    let lines = vec!["\"".repeat(190 * 1024); 3];
    let mut left_out = 0;
    for round in 1..=3 {
        let response = write(&instance, None, &lines).await;
        assert_eq!((response.status.as_u16(), response.header("etag")), (200, &*format!("\"{}-1\"", 1 + round * 3)));
        assert!(serde_json::to_string(&response.text).unwrap().len() < LIMIT);
        left_out += usize::from(response.body.get("state").is_none());
        assert_eq!(response.body["events"].as_array().unwrap().len(), 3);
    }
    assert_eq!(left_out, 2);
    // Commands are still executed, also with a key.
    let keyed = write(&instance, Some("k"), &["one more".to_owned()]).await;
    assert_eq!((keyed.status.as_u16(), keyed.header("etag"), keyed.body.get("state")), (200, "\"11-1\"", None));
    let again = write(&instance, Some("k"), &["one more".to_owned()]).await;
    assert_eq!((again.header("idempotency-replayed"), &again.text), ("true", &keyed.text));

    for path in ["/notebook/1", "/notebook/1?rebuild=true", "/notebook/1?version=11"] {
        let read = instance.get(path).await.expect_problem(413, "too-large");
        assert!(read.body["detail"].as_str().unwrap().contains("/events"), "{}", read.text);
    }
    // Reads of a small earlier version, of the events, and of an unchanged version still succeed.
    instance.get("/notebook/1?version=1").await.expect(200);
    instance.get("/notebook/1/events?after=10").await.expect(200);
    send(&instance.router, Method::GET, "/notebook/1", &[("if-none-match", "\"11-1\"")], None).await.expect(304);

    // A command that makes the state small again succeeds.
    let cleared = instance.post("/notebook/1/commands", json!({"command": "Clear"})).await.expect(200);
    assert_eq!(cleared.body["state"], json!({"lines": []}));
    instance.get("/notebook/1").await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn keyed_response_with_a_too_large_state_is_stored_and_returned_without_it() {
    let instance = notebook().await;
    let lines = vec![noise(300 * 1024); 2];
    assert!(write(&instance, None, &lines).await.body["state"].is_object());
    instance.table.proxy.take_calls();
    let keyed = write(&instance, Some("k"), &["small".to_owned()]).await.expect(200);
    assert_eq!(keyed.body.get("state"), None);
    // It still takes one call.
    assert_eq!(instance.table.proxy.take_calls().len(), 1);
    let again = write(&instance, Some("k"), &["small".to_owned()]).await;
    assert_eq!((again.header("idempotency-replayed"), &again.text), ("true", &keyed.text));
    assert_eq!(again.header("etag"), keyed.header("etag"));
    // Without a key, no response is stored, so the response contains the state.
    assert!(write(&instance, None, &["small".to_owned()]).await.body["state"].is_object());
}

#[tokio::test(flavor = "multi_thread")]
async fn command_with_events_too_large_for_a_response_appends_nothing() {
    let instance = notebook().await;
    // A backslash takes two bytes in the table, which contains JSON, and four in Lambda's response.
    let lines = vec!["\\".repeat(190 * 1024); 10];
    write(&instance, None, &lines).await.expect_problem(413, "too-large");
    assert_eq!(instance.get("/notebook/1").await.header("etag"), "\"1-1\"");
}

#[tokio::test(flavor = "multi_thread")]
async fn command_that_is_executed_without_a_key_is_also_executed_with_one() {
    let instance = notebook().await;
    // The response to the first command is too large to be stored, even compressed. The response to the second one
    // compresses well, but the events leave no space for it in the transaction.
    let three = [300, 301, 302].map(|kilobytes| noise(kilobytes * 1024));
    let full: Vec<_> = vec!["x".repeat(370 * 1024); 11].into_iter().chain([noise(21 * 1024)]).collect();
    for (key, lines, version) in [("a", &three[..], 4), ("b", &full, 16)] {
        instance.table.proxy.take_calls();
        let keyed = write(&instance, Some(key), lines).await.expect(200);
        assert_eq!(keyed.header("etag"), format!("\"{version}-1\""));
        assert_eq!(keyed.text, format!(r#"{{"id":"1","version":{version}}}"#));
        assert_eq!(instance.table.proxy.take_calls().len(), 1);
        let again = write(&instance, Some(key), lines).await.expect(200);
        assert_eq!((again.header("idempotency-replayed"), &again.text), ("true", &keyed.text));
        assert_eq!(again.header("etag"), keyed.header("etag"));
    }
    // All events were appended.
    let events = instance.get("/notebook/1/events?after=1&limit=3").await.body;
    let written: Vec<_> = events["events"].as_array().unwrap().iter().map(|event| &event["data"]["text"]).collect();
    assert_eq!(written, three.each_ref().map(|line| line.as_str()));
    // A command that is too large without a key is too large with one, although a smaller response could be stored.
    let over = vec!["x".repeat(46_500); 90];
    for key in [None, Some("c")] {
        let rejected = write(&instance, key, &over).await.expect_problem(413, "too-large");
        assert!(
            rejected.body["detail"].as_str().unwrap().contains("the maximum of a transaction"),
            "{}",
            rejected.text
        );
    }
    assert_eq!(instance.get("/notebook/1/events?after=16").await.body["events"], json!([]));
}

/// An aggregate whose state contains JSON as it was written.
struct Document;

#[derive(Clone, Default, Serialize, Deserialize, JsonSchema)]
struct DocumentState {
    text: Option<Json>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
enum DocumentCommand {
    /// Writes an empty list with line breaks.
    Write { line_breaks: usize },
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
enum DocumentEvent {
    DocumentWritten { line_breaks: usize },
}

impl Aggregate for Document {
    const TYPE: &'static str = "document";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "Write", update: None, delete: None };
    const EVENTS: &'static [EventType] = &[EventType::new("DocumentWritten", 1)];

    type State = DocumentState;
    type Command = DocumentCommand;
    type Event = DocumentEvent;

    fn decide(
        _: &DocumentState,
        DocumentCommand::Write { line_breaks }: DocumentCommand,
        _: &Context<'_, DocumentEvent>,
    ) -> Decision<DocumentEvent> {
        Ok(vec![DocumentEvent::DocumentWritten { line_breaks }])
    }

    fn evolve(_: DocumentState, DocumentEvent::DocumentWritten { line_breaks }: &DocumentEvent) -> DocumentState {
        DocumentState { text: Json::parse(format!("[{}]", "\r\n\t".repeat(line_breaks / 3))).ok() }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn line_breaks_between_json_values_count_twice_towards_the_limit_of_a_response() {
    let registry = Registry::new().with::<Document>().unwrap();
    let instance = Instance::with(LocalDynamoDb::in_memory().await.unwrap(), registry, settings()).await;
    for (id, line_breaks, fits) in [("small", 2_000_000, true), ("large", 4_000_000, false)] {
        let written = instance.post("/document", json!({"id": id, "line_breaks": line_breaks})).await.expect(201);
        assert_eq!(written.body["state"].is_object(), fits);
        assert!(serde_json::to_string(&written.text).unwrap().len() < LIMIT);
        let read = instance.get(&format!("/document/{id}")).await;
        if fits {
            read.expect(200)
        } else {
            read.expect_problem(413, "too-large")
        };
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_text_that_is_escaped_fit_a_response() {
    let instance = notebook().await;
    for character in ["\"", "\n", "\u{1}"] {
        // 360 KB as JSON.
        let text = character.repeat(360 * 1024 / (serde_json::to_string(character).unwrap().len() - 2));
        write(&instance, None, &vec![text; 3]).await.expect(200);
    }
    let (mut read, mut next) = (0, Some("/notebook/1/events?limit=1000".to_owned()));
    while let Some(path) = next {
        let page = instance.get(&path).await.expect(200);
        assert!(serde_json::to_string(&page.text).unwrap().len() < LIMIT, "{path}");
        read += page.body["events"].as_array().unwrap().len();
        next = page.next().map(str::to_owned);
    }
    assert_eq!(read, 1 + 3 * 3);
}
