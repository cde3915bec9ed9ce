//! An event with a new optional field: to-dos in the release before they had owners, and in this one.

use daybook_command_handler::{Api, router};
use daybook_decider::{Aggregate, Commands, Context, Decision, EventType, Registry};
use daybook_table::AggregateKey;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::callers::events::{ApiEvent, jwt};
use crate::instance::{Instance, settings};

/// The to-do of the release before.
struct Todo;

fn old_registry() -> Registry {
    Registry::new().with::<Todo>().unwrap()
}

#[derive(Clone, Default, Serialize, Deserialize, JsonSchema)]
struct State {
    id: String,
    title: String,
    message: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    deleted: bool,
}

#[derive(Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
enum Command {
    CreateTodo { title: String, message: String },
    UpdateTodo { title: String, message: String },
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
enum Event {
    TodoCreated { id: String, title: String, message: String },
    TodoUpdated { title: String, message: String },
}

impl Aggregate for Todo {
    const TYPE: &'static str = "todo";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "CreateTodo", update: Some("UpdateTodo"), delete: None };
    const EVENTS: &'static [EventType] = &[EventType::new("TodoCreated", 1), EventType::new("TodoUpdated", 1)];

    type State = State;
    type Command = Command;
    type Event = Event;

    fn decide(_: &State, command: Command, context: &Context<'_, Event>) -> Decision<Event> {
        Ok(vec![match command {
            Command::CreateTodo { title, message } => {
                Event::TodoCreated { id: context.aggregate_id().to_owned(), title, message }
            }
            Command::UpdateTodo { title, message } => Event::TodoUpdated { title, message },
        }])
    }

    fn evolve(state: State, event: &Event) -> State {
        match event.clone() {
            Event::TodoCreated { id, title, message } => State { id, title, message, deleted: false },
            Event::TodoUpdated { title, message } => State { title, message, ..state },
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn release_without_owners_reads_owned_todos_and_removes_no_owner() {
    let instance = Instance::start().await;
    let old = router(Api::new(old_registry(), instance.table.direct_store(), settings()));
    let (ann, bob) = (jwt(json!({"sub": "ann"})), jwt(json!({"sub": "bob"})));
    let owned = json!({"id": "1", "title": "TODO", "message": "Make coffee"});
    let created = ApiEvent::post("/todo", &owned).of(&ann).key("k").send(&instance).await.expect(201);
    // The old release reads the row of the new one, and replays its response.
    assert_eq!(ApiEvent::get("/todo/1").of(&ann).send_to(&old).await.expect(200).body["state"], owned);
    let again = ApiEvent::post("/todo", &owned).of(&ann).key("k").send_to(&old).await.expect(201);
    assert!(again.header("idempotency-replayed") == "true" && again.body == created.body);
    let tea = json!({"title": "TODO", "message": "Make tea"});
    ApiEvent::post("/todo/1", &tea).of(&ann).send_to(&old).await.expect(200);
    // A snapshot of the old release has no owner, and the new release does not use it.
    let key = AggregateKey::new("todo", "1");
    let store = instance.table.direct_store();
    store.take_snapshot(old_registry().get("todo").unwrap(), &key, Timestamp::now()).await.unwrap();
    let new = instance.beside();
    let read = ApiEvent::get("/todo/1").of(&ann).send_to(&new).await.expect(200);
    assert_eq!((&read.body["state"]["owner"], &read.body["state"]["message"]), (&json!("ann"), &json!("Make tea")));
    ApiEvent::get("/todo/1").of(&bob).send_to(&new).await.expect_problem(403, "forbidden");

    // A to-do that the old release creates has no owner. The new release replays the response to its creation.
    let unowned = json!({"id": "2", "title": "TODO", "message": ""});
    let created = ApiEvent::post("/todo", &unowned).of(&ann).key("k").send_to(&old).await.expect(201);
    let again = ApiEvent::post("/todo", &unowned).of(&ann).key("k").send_to(&new).await.expect(201);
    assert!(again.header("idempotency-replayed") == "true" && again.body == created.body);
    ApiEvent::get("/todo/2").of(&bob).send_to(&new).await.expect(200);
}
