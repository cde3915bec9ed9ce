//! Personal values about other aggregates: a visit has the name of a customer, and of a guest who has no aggregate.

use std::time::Duration;

use aggregates::Customer;
use axum::Router;
use axum::http::Method;
use daybook_command_handler::{Api, router};
use daybook_decider::{Aggregate, Commands, Context, Decision, EventType, Personal, Registry};
use daybook_local_aws::dynamodb::LocalDynamoDb;
use daybook_test_support::table::KEYS_TABLE;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::{advance, pause, resume};

use crate::instance::{Instance, request, send, settings};

struct Visit;

#[derive(Clone, Default, Serialize, Deserialize, JsonSchema)]
struct State {
    host: Personal<String>,
    guest: Personal<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
enum Command {
    Visit { customer: String, host: Personal<String> },
    Bring { guest: Personal<String> },
    Leave {},
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
enum Event {
    Visited { host: Personal<String> },
    Brought { guest: Personal<String> },
    Left {},
}

fn about(of: &str, id: &str, value: &Personal<String>) -> Personal<String> {
    Personal::about(of, id, value.get().cloned().unwrap_or_default())
}

impl Aggregate for Visit {
    const TYPE: &'static str = "visit";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "Visit", update: Some("Bring"), delete: None };
    const EVENTS: &'static [EventType] =
        &[EventType::new("Visited", 1), EventType::new("Brought", 1), EventType::new("Left", 1)];

    type State = State;
    type Command = Command;
    type Event = Event;

    fn decide(_: &State, command: Command, context: &Context<'_, Event>) -> Decision<Event> {
        Ok(vec![match command {
            Command::Visit { customer, host } => Event::Visited { host: about("customer", &customer, &host) },
            Command::Bring { guest } => Event::Brought { guest: about("guest", &context.new_id().to_string(), &guest) },
            Command::Leave {} => Event::Left {},
        }])
    }

    fn evolve(state: State, event: &Event) -> State {
        match event.clone() {
            Event::Visited { host } => State { host, ..state },
            Event::Brought { guest } => State { guest, ..state },
            Event::Left {} => state,
        }
    }
}

fn registry() -> Registry {
    Registry::new().with::<Customer>().unwrap().with::<Visit>().unwrap()
}

/// An instance with Ann, who is customer 7 and the host of visit 1, and another one over the same tables.
async fn start() -> (Instance, Router) {
    let instance = Instance::with(LocalDynamoDb::in_memory().await.unwrap(), registry(), settings()).await;
    let other = router(Api::new(registry(), instance.table.direct_store(), settings()));
    instance.post("/customer", json!({"id": "7", "email": "ann@example.com", "name": "Ann"})).await.expect(201);
    instance.post("/visit", json!({"id": "1", "customer": "7", "host": "Ann"})).await.expect(201);
    (instance, other)
}

async fn forget(instance: &Instance) {
    instance.post("/customer/7/commands", json!({"command": "ForgetCustomer"})).await.expect(200);
}

async fn leave(router: &Router) -> Value {
    let leave = json!({"command": "Leave"});
    let left = send(router, Method::POST, "/visit/1/commands", &[], Some(leave)).await.expect(200);
    left.body["state"]["host"].clone()
}

#[tokio::test]
async fn value_about_another_aggregate_is_forgotten_at_once_here_and_after_150_seconds_elsewhere() {
    let (instance, other) = start().await;
    assert_eq!(leave(&other).await, "Ann");
    forget(&instance).await;
    assert_eq!(leave(&instance.router).await, Value::Null);
    // The other instance has the state in memory, also after commands, and the key.
    let passed = Duration::from_secs(149);
    for (passed, host) in
        [(Duration::ZERO, json!("Ann")), (passed, json!("Ann")), (Duration::from_secs(2), json!(null))]
    {
        pause();
        advance(passed).await;
        resume();
        assert_eq!(leave(&other).await, host, "{passed:?} later");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn value_about_an_aggregate_with_a_new_id_is_stored() {
    let (instance, other) = start().await;
    let brought = instance.post("/visit/1", json!({"guest": "Bob"})).await.expect(200);
    assert_eq!(brought.body["state"]["guest"], "Bob");
    let visit = send(&other, Method::GET, "/visit/1", &[], None).await.expect(200);
    assert_eq!(visit.body["state"], json!({"host": "Ann", "guest": "Bob"}));
    let rows = instance.table.raw.scan().table_name(KEYS_TABLE).send().await.unwrap();
    assert_eq!(rows.count(), 3, "the keys of the stack, the customer and the guest: {rows:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_request_gets_its_response_and_a_new_one_an_error_once_the_subject_is_forgotten() {
    let (instance, other) = start().await;
    let ask = async |router: &Router, id: &str, key: &str| {
        let visit = json!({"id": id, "customer": "7", "host": "Ann"});
        let request = request(Method::POST, "/visit", &[("idempotency-key", key)], Some(visit));
        crate::instance::ask(router, request).await
    };
    ask(&instance.router, "2", "a").await.expect(201);
    forget(&instance).await;
    for router in [&instance.router, &other] {
        assert_eq!(ask(router, "2", "a").await.expect(201).body["state"]["host"], Value::Null);
        ask(router, "3", "b").await.expect_problem(409, "subject-forgotten");
    }
    instance.get("/visit/3").await.expect(404);
}
