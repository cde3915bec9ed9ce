//! The description of the messages: its copies, its examples, and the changes that break a consumer.

use std::time::Duration;

use daybook_api_documents::{asyncapi, breaks, json_schema};
use daybook_cli::commands::documents::{asyncapi_text, json_schema_text};
use daybook_decider::{Aggregate, Commands, Context, Decision, EventType, Message, Registry};
use jsonschema::{Draft, Validator};
use schemars::{JsonSchema, Schema, schema_for};
use serde::Serialize;
use serde_json::{Value, json};
use suite_tests::{Suite, workspace};

use crate::counter::{Command, Counter, Event, State};

fn document() -> Value {
    json_schema(&aggregates::registry().unwrap())
}

/// The schema of any message.
fn any_message(document: &Value) -> Validator {
    let options = jsonschema::options().with_draft(Draft::Draft202012).should_validate_formats(true);
    options.build(document).unwrap()
}

fn copy(file: &str) -> String {
    std::fs::read_to_string(workspace().join("docs").join(file)).unwrap_or_default()
}

#[test]
fn copy_of_the_schemas_equals_the_generated_ones_and_nothing_breaks_a_consumer() {
    let copy = copy("messages.schema.json");
    let earlier = serde_json::from_str(&copy).unwrap_or(Value::Null);
    let broken: Vec<_> = breaks(&earlier, &document()).iter().map(|found| format!("  {found}\n")).collect();
    assert!(
        broken.is_empty(),
        "consumers of the last release break, because\n{}\
         Publish a message of a new name beside the old one; docs/evolving-events.md describes how.",
        broken.concat()
    );
    assert!(
        copy == json_schema_text(&aggregates::registry().unwrap()),
        "docs/messages.schema.json differs from the generated document, in a way that breaks no consumer; write it again:\n\
         cargo run -- schemas > docs/messages.schema.json"
    );
}

#[test]
fn copy_of_the_asyncapi_document_equals_the_generated_one() {
    assert!(
        copy("asyncapi.json") == asyncapi_text(&aggregates::registry().unwrap()),
        "docs/asyncapi.json differs from the generated document; write it again:\n\
         cargo run -- schemas --asyncapi > docs/asyncapi.json"
    );
}

#[test]
fn asyncapi_document_is_valid() {
    let schema = include_str!("message_schemas/asyncapi-3.0.0.json");
    let validator = jsonschema::validator_for(&serde_json::from_str(schema).unwrap()).unwrap();
    let document = asyncapi(&aggregates::registry().unwrap());
    let errors: Vec<_> =
        validator.iter_errors(&document).map(|error| format!("{}: {error:.300}", error.instance_path())).collect();
    assert!(errors.is_empty(), "{errors:#?}");
    let mut references = Vec::new();
    collect_references(&document, &mut references);
    assert!(references.len() > 40, "{}", references.len());
    for reference in references {
        assert!(document.pointer(reference.trim_start_matches('#')).is_some(), "{reference} refers to nothing");
    }
    // The validator does find errors.
    let mut wrong = document.clone();
    wrong["operations"]["publish.todo"]["action"] = "publish".into();
    assert!(!validator.is_valid(&wrong));
}

fn collect_references<'a>(value: &'a Value, into: &mut Vec<&'a str>) {
    match value {
        Value::Object(members) => {
            into.extend(members.get("$ref").and_then(Value::as_str));
            members.values().for_each(|member| collect_references(member, into));
        }
        Value::Array(elements) => elements.iter().for_each(|element| collect_references(element, into)),
        _ => {}
    }
}

#[test]
fn each_message_has_an_example_that_matches_its_schema_alone() {
    let (schemas, asyncapi) = (document(), asyncapi(&aggregates::registry().unwrap()));
    let validator = any_message(&schemas);
    let messages = asyncapi["components"]["messages"].as_object().unwrap();
    assert_eq!(messages.len(), 40, "{:?}", messages.keys());
    for (key, message) in messages {
        let example = &message["examples"][0]["payload"];
        assert_eq!(example["detail-type"], message["name"], "{key} has no example");
        // `oneOf`: no other message's schema matches it.
        validator.validate(example).unwrap_or_else(|error| panic!("{key}: {error}"));
        let mut other = example.clone();
        other["detail"]["data"] = "nothing".into();
        assert!(!validator.is_valid(&other), "{key}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_on_the_bus_match_the_schemas() {
    let mut suite = Suite::start().await;
    let schemas = document();
    for (path, body) in [
        ("/todo", json!({"id": "1", "title": "TODO", "message": "Make coffee"})),
        ("/todo/1", json!({"title": "TODO", "message": "Make 2 coffees"})),
        ("/order", json!({"id": "1", "customerId": "ann", "items": [{"productId": "tea", "quantity": 1}], "total": 1})),
        ("/order/1/commands", json!({"command": "ProcessPayment", "data": {"amount": 1}})),
        ("/account", json!({"id": "1"})),
        ("/account/1/commands", json!({"command": "RecordTransaction", "data": {"desc": "Rent", "amount": -300}})),
    ] {
        let response = suite.post(path, &body).await;
        assert!(response.status.is_success(), "{path}: {}", response.text);
    }
    for _ in 0..5 {
        let message = tokio::time::timeout(Duration::from_secs(30), suite.stack.next_message()).await.unwrap().unwrap();
        let name = format!("{}.{}", message.resources[0].split('/').next().unwrap(), message.detail_type);
        let mut schema = schemas["$defs"][&name]["properties"]["detail"].clone();
        schema["$defs"] = schemas["$defs"].clone();
        let detail = serde_json::from_str(&message.detail).unwrap();
        any_message(&schema).validate(&detail).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

/// A counter that publishes these messages.
struct CounterOf<M>(std::marker::PhantomData<fn() -> M>);

trait Published: Serialize + JsonSchema + 'static {
    fn started(from: u32) -> Self;
}

impl<M: Published> Aggregate for CounterOf<M> {
    const TYPE: &'static str = "counter";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Counter::COMMANDS;
    const EVENTS: &'static [EventType] = Counter::EVENTS;

    type State = State;
    type Command = Command;
    type Event = Event;

    fn decide(state: &State, command: Command, context: &Context<'_, Event>) -> Decision<Event> {
        Counter::decide(state, command, context)
    }

    fn evolve(state: State, event: &Event) -> State {
        Counter::evolve(state, event)
    }

    fn announce(_: &State, _: &Event, after: &State) -> Vec<Message> {
        vec![Message::of(&M::started(after.left))]
    }

    fn message_schema() -> Schema {
        schema_for!(M)
    }
}

/// The messages of a release.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
#[expect(dead_code, reason = "only the schema of most variants is of interest")]
enum OfOneRelease {
    Started { from: u32, by: Option<String> },
    Stopped { at: u32 },
    Reset {},
}

impl Published for OfOneRelease {
    fn started(from: u32) -> Self {
        Self::Started { from, by: None }
    }
}

/// The messages of the next release: one is new, one has another member, and three changes break a consumer.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
#[expect(dead_code, reason = "only the schema of most variants is of interest")]
enum OfNextRelease {
    Started { from: u32, reason: String },
    Stopped { at: u64 },
    Paused { at: u32 },
}

impl Published for OfNextRelease {
    fn started(from: u32) -> Self {
        Self::Started { from, reason: "begin".to_owned() }
    }
}

#[test]
fn change_that_breaks_consumers_names_message_and_path() {
    let one = json_schema(&Registry::new().with::<CounterOf<OfOneRelease>>().unwrap());
    let next = json_schema(&Registry::new().with::<CounterOf<OfNextRelease>>().unwrap());
    assert!(breaks(&one, &one).is_empty());
    let mut changes = breaks(&one, &next);
    changes.sort_unstable();
    assert_eq!(
        changes,
        [
            "counter.Reset is not published any more",
            "counter.Started: detail.data.by is not sent any more",
            "counter.Stopped: detail.data.at had the maximum 4294967295, which is now 18446744073709551615",
        ]
    );
}

#[test]
fn message_of_any_name_is_described() {
    /// A message whose name has characters that a document's keys cannot have.
    #[derive(Serialize, JsonSchema)]
    #[serde(tag = "type", content = "data")]
    enum Named {
        #[serde(rename = "Counter Started/Überall")]
        Started { from: u32 },
    }

    impl Published for Named {
        fn started(from: u32) -> Self {
            Self::Started { from }
        }
    }

    let document = asyncapi(&Registry::new().with::<CounterOf<Named>>().unwrap());
    let message = &document["components"]["messages"]["counter.Counter_Started__berall"];
    assert_eq!(message["name"], "Counter Started/Überall");
    assert_eq!(message["examples"][0]["payload"]["detail"]["data"], json!({"from": 1}));
}
