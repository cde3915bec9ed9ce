//! Personal values about other aggregates: a visit has the name of a customer, and of a guest who has no aggregate.

use std::time::Duration;

use aggregates::Customer;
use axum::Router;
use axum::http::Method;
use daybook_command_handler::{Api, router};
use daybook_decider::Registry;
use daybook_local_aws::dynamodb::LocalDynamoDb;
use daybook_test_support::fault_proxy::InjectedFault;
use daybook_test_support::table::KEYS_TABLE;
use daybook_test_support::visit::Visit;
use serde_json::{Value, json};

use crate::instance::{Instance, pass, request, send, settings};

/// An aggregate with a personal value for each of many guests, who have no aggregates.
mod party {
    use daybook::{Aggregate, Context, Decision, Personal};

    pub(super) struct Party;

    #[daybook::state]
    pub(super) struct State {}

    #[daybook::commands(create = Invite)]
    pub(super) enum Command {
        Invite { guests: usize },
    }

    #[daybook::events]
    pub(super) enum Event {
        #[event("PartyBegun")]
        Begun { names: Vec<Personal<String>> },
    }

    #[daybook::aggregate("party")]
    impl Aggregate for Party {
        fn decide(_: &State, command: Command, _: &Context<'_, Event>) -> Decision<Event> {
            let Command::Invite { guests } = command;
            let name = |guest: usize| Personal::about("guest", &guest.to_string(), "Bob".to_owned());
            Ok(vec![Event::Begun { names: (0..guests).map(name).collect() }])
        }

        fn evolve(state: State, _: &Event) -> State {
            state
        }
    }
}

fn registry() -> Registry {
    Registry::new().with::<Customer>().unwrap().with::<Visit>().unwrap().with::<party::Party>().unwrap()
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
        pass(passed).await;
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

#[tokio::test(flavor = "multi_thread")]
async fn process_that_forgot_forgets_at_once_if_the_response_of_the_table_is_lost() {
    let (instance, _) = start().await;
    assert_eq!(leave(&instance.router).await, "Ann");
    instance.table.proxy.fail_next("TransactWriteItems", InjectedFault::BreakAfter);
    let forget = json!({"command": "ForgetCustomer"});
    let forget = request(Method::POST, "/customer/7/commands", &[("idempotency-key", "k")], Some(forget));
    instance.ask(forget).await.expect(200);
    assert_eq!(leave(&instance.router).await, Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn append_has_personal_values_of_a_thousand_subjects_at_most() {
    let (instance, _) = start().await;
    let invite = async |id: &str, guests: usize| {
        let party = json!({"id": id, "guests": guests});
        instance.ask(request(Method::POST, "/party", &[("idempotency-key", id)], Some(party))).await
    };
    let problem = invite("1", 1_001).await.expect_problem(413, "too-large");
    let detail = "the commands would write personal values of more than 1000 subjects, the maximum of a request";
    assert_eq!(problem.body["detail"], detail);
    instance.get("/party/1").await.expect(404);
    invite("2", 1_000).await.expect(201);
}
