//! Personal values in the history of an aggregate whose state does not have them.

use std::time::Duration;

use aggregates::Customer;
use axum::Router;
use axum::http::Method;
use daybook_command_handler::{Api, router};
use daybook_decider::{Aggregate, Commands, Context, Decision, EventType, Personal, Registry};
use daybook_local_aws::dynamodb::LocalDynamoDb;
use daybook_test_support::visit::about;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::instance::{Instance, pass, send, settings};

/// Guests of customer 7.
struct Guestbook;

#[derive(Clone, Default, Serialize, Deserialize, JsonSchema)]
struct State {
    known: usize,
}

#[derive(Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
enum Command {
    Sign { name: Personal<String> },
    Count {},
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
enum Event {
    Signed { name: Personal<String> },
    Counted { known: usize },
}

impl Aggregate for Guestbook {
    const TYPE: &'static str = "guestbook";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "Sign", update: None, delete: None };
    const EVENTS: &'static [EventType] = &[EventType::new("Signed", 1), EventType::new("Counted", 1)];
    const FULL_HISTORY: bool = true;

    type State = State;
    type Command = Command;
    type Event = Event;

    fn decide(_: &State, command: Command, context: &Context<'_, Event>) -> Decision<Event> {
        let is_known = |event: &&Event| matches!(event, Event::Signed { name } if !name.is_forgotten());
        Ok(vec![match command {
            Command::Sign { name } => Event::Signed { name: about("customer", "7", &name) },
            Command::Count {} => Event::Counted { known: context.history().iter().filter(is_known).count() },
        }])
    }

    fn evolve(state: State, event: &Event) -> State {
        match event {
            Event::Counted { known } => State { known: *known },
            Event::Signed { .. } => state,
        }
    }
}

fn registry() -> Registry {
    Registry::new().with::<Customer>().unwrap().with::<Guestbook>().unwrap()
}

async fn count(router: &Router) -> Value {
    let count = json!({"command": "Count"});
    let counted = send(router, Method::POST, "/guestbook/1/commands", &[], Some(count)).await.expect(200);
    counted.body["state"]["known"].clone()
}

#[tokio::test]
async fn history_with_a_forgotten_value_leaves_the_memory_after_150_seconds() {
    let instance = Instance::with(LocalDynamoDb::in_memory().await.unwrap(), registry(), settings()).await;
    let other = router(Api::new(registry(), instance.table.direct_store(), settings()));
    instance.post("/customer", json!({"id": "7", "email": "ann@example.com", "name": "Ann"})).await.expect(201);
    instance.post("/guestbook", json!({"id": "1", "name": "Ann"})).await.expect(201);
    assert_eq!(count(&other).await, 1);
    instance.post("/customer/7/commands", json!({"command": "ForgetCustomer"})).await.expect(200);
    for (passed, known) in [(149, 1), (2, 0)] {
        pass(Duration::from_secs(passed)).await;
        assert_eq!(count(&other).await, known, "{passed} seconds later");
    }
}
