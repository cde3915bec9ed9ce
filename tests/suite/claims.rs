//! Claims: unique values across aggregates, over HTTP.

use axum::http::Method;
use daybook_admin::AdminCalls;
use daybook_decider::{Aggregate, Claim, Commands, Context, Decision, EventType, Registry, Rejection};
use daybook_local_aws::dynamodb::LocalDynamoDb;
use daybook_table::AggregateKey;
use daybook_test_support::fault_proxy::InjectedFault;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::instance::{Instance, send, settings};

fn ann(id: &str) -> Value {
    json!({"id": id, "email": "Ann@example.com", "name": "Ann"})
}

fn email(email: &str) -> Value {
    json!({ "email": email })
}

async fn delete(instance: &Instance, path: &str) {
    send(&instance.router, Method::DELETE, path, &[], None).await.expect(200);
}

/// The units of the calls since the last time, of the table and its index.
fn units(instance: &Instance) -> Vec<f64> {
    instance.table.proxy.take_calls().iter().map(|call| call.table_units + call.index_units).collect()
}

async fn holder(instance: &Instance, email: &str) -> Option<AggregateKey> {
    let claim = Claim::new("personal-email", email);
    instance.table.direct_store().claim(&claim).await.unwrap().map(|row| row.holder())
}

#[tokio::test(flavor = "multi_thread")]
async fn value_belongs_to_one_aggregate_until_it_is_released() {
    let instance = Instance::start().await;
    instance.post("/customer", ann("1")).await.expect(201);
    let taken = instance.post("/customer", ann("2")).await.expect(409);
    assert_eq!(
        taken.body,
        json!({
            "type": "urn:daybook:problem:claim-taken",
            "title": "Claim taken",
            "status": 409,
            "detail": "another aggregate has this value of personal-email",
            "claim": "personal-email",
            "holder": "customer/1",
        })
    );
    instance.get("/customer/2").await.expect(404);

    instance.post("/customer/1", email("ann@example.org")).await.expect(200);
    instance.post("/customer", ann("2")).await.expect(201);
    instance.post("/customer/1", email("ann@example.com")).await.expect(409);
    assert_eq!(holder(&instance, "ann@example.org").await, Some(AggregateKey::new("customer", "1")));

    delete(&instance, "/customer/2").await;
    instance.post("/customer/1", email("ann@example.com")).await.expect(200);
    assert_eq!(holder(&instance, "ann@example.org").await, None);
    assert_eq!(holder(&instance, "ann@example.com").await, Some(AggregateKey::new("customer", "1")));
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_costs_two_units_when_it_changes() {
    let instance = Instance::start().await;
    // The keys of the stack, which the first customer makes, and of the customer. Then as an aggregate without claims, and two
    // units.
    instance.post("/customer", ann("1")).await.expect(201);
    assert_eq!(units(&instance), [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 9.0]);
    // One claim is released and one is taken.
    instance.post("/customer/1", email("ann@example.org")).await.expect(200);
    assert_eq!(units(&instance), [11.0]);
    // The claim stays the same.
    instance.post("/customer/1", email("Ann@example.org")).await.expect(200);
    assert_eq!(units(&instance), [7.0]);
    // The customer is forgotten too, which is two units for the key.
    delete(&instance, "/customer/1").await;
    assert_eq!(units(&instance), [11.0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn aggregate_is_found_by_a_claim_with_one_read() {
    let instance = Instance::start().await;
    instance.post("/customer", ann("1")).await.expect(201);
    instance.table.proxy.take_calls();
    let found = instance.get("/customer?claim=personal-email:ann@example.com").await.expect(303);
    assert_eq!(found.header("location"), "/customer/1");
    let calls = instance.table.proxy.take_calls();
    assert_eq!((calls.len(), &*calls[0].operation, &calls[0].request["ConsistentRead"]), (1, "GetItem", &json!(true)));
    for (path, status) in [
        ("/customer?claim=personal-email:bob@example.com", 404),
        ("/todo?claim=personal-email:ann@example.com", 404),
        ("/customer?claim=personal-email", 400),
        ("/customer?claim=personal-email:", 400),
    ] {
        instance.get(path).await.expect(status);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn taken_claim_is_not_stored_under_an_idempotency_key() {
    let instance = Instance::start().await;
    instance.post("/customer", ann("1")).await.expect(201);
    let key = [("idempotency-key", "k")];
    let register = async || send(&instance.router, Method::POST, "/customer", &key, Some(ann("2"))).await;
    register().await.expect(409);
    delete(&instance, "/customer/1").await;
    assert_eq!(register().await.expect(201).header("idempotency-replayed"), "");
    assert_eq!(register().await.expect(201).header("idempotency-replayed"), "true");
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_of_an_append_whose_response_was_lost_is_its_own() {
    let instance = Instance::start().await;
    instance.table.proxy.fail_next("TransactWriteItems", InjectedFault::BreakAfter);
    instance.post("/customer", ann("1")).await.expect(201);
    assert_eq!(holder(&instance, "ann@example.com").await, Some(AggregateKey::new("customer", "1")));
    let (registry, key) = (aggregates::registry().unwrap(), AggregateKey::new("customer", "1"));
    let store = instance.table.direct_store();
    let model = registry.get("customer").unwrap();
    let verified = store.admin().verify(model, &key, Timestamp::now()).await.unwrap();
    assert_eq!((verified.events, verified.findings), (1, vec![]));
}

/// A person who has not confirmed a subscription yet has a token, which works once.
struct SignUp;

#[derive(Clone, Default, Serialize, Deserialize, JsonSchema)]
struct State {
    token: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
enum Command {
    SignUp {},
    Confirm { token: String },
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
enum Event {
    SignedUp { token: String },
    Confirmed {},
}

impl Aggregate for SignUp {
    const TYPE: &'static str = "sign-up";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "SignUp", update: Some("Confirm"), delete: None };
    const EVENTS: &'static [EventType] = &[EventType::new("SignedUp", 1), EventType::new("Confirmed", 1)];

    type State = State;
    type Command = Command;
    type Event = Event;

    fn decide(state: &State, command: Command, context: &Context<'_, Event>) -> Decision<Event> {
        match command {
            Command::SignUp {} => Ok(vec![Event::SignedUp { token: context.new_id().to_string() }]),
            Command::Confirm { token } if state.token.as_ref() == Some(&token) => Ok(vec![Event::Confirmed {}]),
            Command::Confirm { .. } => Err(Rejection::new("TokenInvalid", "the token was used, or is another one")),
        }
    }

    fn evolve(_: State, event: &Event) -> State {
        match event.clone() {
            Event::SignedUp { token } => State { token: Some(token) },
            Event::Confirmed {} => State { token: None },
        }
    }

    fn claims(state: &State) -> Vec<Claim> {
        state.token.iter().map(|token| Claim::new("opt-in-token", token.clone())).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn opt_in_token_finds_its_aggregate_and_works_once() {
    let registry = Registry::new().with::<SignUp>().unwrap();
    let instance = Instance::with(LocalDynamoDb::in_memory().await.unwrap(), registry, settings()).await;
    let signed_up = instance.post("/sign-up", json!({"id": "1"})).await.expect(201);
    let token = signed_up.body["state"]["token"].as_str().unwrap();
    let link = format!("/sign-up?claim=opt-in-token:{token}");
    assert_eq!(instance.get(&link).await.expect(303).header("location"), "/sign-up/1");
    instance.post("/sign-up/1", json!({"token": "other"})).await.expect_problem(422, "refused");
    instance.post("/sign-up/1", json!({ "token": token })).await.expect(200);
    instance.get(&link).await.expect(404);
    instance.post("/sign-up/1", json!({ "token": token })).await.expect_problem(422, "refused");
}
