//! Personal data: sealed in every row, and forgotten everywhere.

use std::collections::BTreeMap;
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use axum::Router;
use axum::http::Method;
use daybook_command_handler::{Api, router};
use daybook_event_store::EventStore;
use daybook_function_runtime::aws_config_at;
use daybook_projection::Projections;
use daybook_projector::{EventRange, Projecting};
use daybook_table::AggregateKey;
use daybook_test_support::fault_proxy::FaultProxy;
use daybook_test_support::names::Names;
use daybook_test_support::row::text;
use daybook_test_support::table::{KEYS_TABLE, VIEWS_TABLE, with_keys};
use serde_json::{Value, json};
use suite_tests::ApiResponse;

use crate::instance::{Instance, request, send, settings};

const NAME: &str = "Ann Example";
const EMAIL: &str = "ann.example@example.com";

/// The sort key of the first event.
const FIRST: &str = "EVENT#000000000001";

async fn get(router: &Router, path: &str) -> ApiResponse {
    send(router, Method::GET, path, &[], None).await
}

async fn register(instance: &Instance, id: &str) {
    let ann = json!({"id": id, "email": EMAIL, "name": NAME});
    let registered = instance.post("/customer", ann).await.expect(201);
    assert_eq!(registered.body["state"], json!({"email": EMAIL, "name": NAME}));
    assert_eq!(registered.body["events"][0]["data"], json!({"email": EMAIL, "name": NAME}));
    let subject = json!({"$subject": format!("customer/{id}")});
    assert_eq!(registered.body["messages"][0]["data"], json!({"email": subject, "name": subject}));
}

#[tokio::test(flavor = "multi_thread")]
async fn values_are_sealed_in_rows_and_plain_for_callers() {
    let instance = Instance::start().await;
    register(&instance, "7").await;
    let rows = instance.table.stored().await;
    assert!(!rows.contains(NAME) && !rows.contains(EMAIL) && rows.contains("sealed"), "{rows}");
    assert!(rows.contains("CLAIM#personal-email*#"), "{rows}");
    // Another process opens them with the same keys.
    let other = instance.beside();
    assert_eq!(get(&other, "/customer/7").await.expect(200).body["state"]["name"], NAME);
    let events = get(&other, "/customer/7/events").await.expect(200);
    assert_eq!(events.body["events"][0]["data"]["name"], NAME);
    let feed = get(&other, "/events?type=CustomerRegistered").await.expect(200);
    assert_eq!(feed.body["events"][0]["data"]["email"], EMAIL);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_read_once_and_a_warm_command_calls_no_other_service() {
    let instance = Instance::start().await;
    let calls = |proxy: &FaultProxy| proxy.take_calls().into_iter().map(|call| call.operation).collect::<Vec<_>>();
    register(&instance, "7").await;
    assert_eq!(calls(&instance.table.kms), ["Encrypt", "Decrypt"]);
    calls(&instance.table.proxy);
    instance.post("/customer/7", json!({"email": "ann@example.com"})).await.expect(200);
    assert_eq!((calls(&instance.table.kms), calls(&instance.table.proxy).len()), (vec![], 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn value_that_is_copied_to_another_aggregate_cannot_be_opened() {
    let instance = Instance::start().await;
    register(&instance, "7").await;
    register_other(&instance).await;
    let [from, to] = ["7", "8"].map(|id| AggregateKey::new("customer", id));
    let copied = instance.table.row(&from, FIRST).await.unwrap().remove("data").unwrap();
    instance.table.tamper(&to, FIRST, [("data", copied)]).await;
    get(&instance.beside(), "/customer/8").await.expect(500);
    get(&instance.beside(), "/customer/7").await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn forgotten_customer_is_null_for_every_caller() {
    let instance = Instance::start().await;
    register(&instance, "7").await;
    let forget = json!({"command": "ForgetCustomer"});
    let forgotten = instance.post("/customer/7/commands", forget.clone()).await.expect(200);
    assert_eq!(forgotten.body["state"], json!({"email": null, "name": null, "forgotten": true}));
    for router in [&instance.router, &instance.beside()] {
        let state = get(router, "/customer/7").await.expect(200).body["state"].clone();
        assert_eq!(state, json!({"email": null, "name": null, "forgotten": true}));
        let first = get(router, "/customer/7?version=1").await.expect(200).body["state"].clone();
        assert_eq!(first, json!({"email": null, "name": null}));
        let events = get(router, "/customer/7/events").await.expect(200).body["events"].clone();
        assert_eq!(events[0]["data"], json!({"email": null, "name": null}));
        let feed = get(router, "/events?type=CustomerRegistered").await.expect(200).body["events"].clone();
        assert_eq!(feed[0]["data"], json!({"email": null, "name": null}));
    }
    assert!(!instance.table.stored().await.contains("CLAIM#"), "the claim is released");
    instance.post("/customer/7", json!({"email": EMAIL})).await.expect(422);
    instance.post("/customer/7/commands", forget).await.expect(200);
    // The address is free.
    register(&instance, "8").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_response_is_sealed_and_forgotten_too() {
    let instance = Instance::start().await;
    let ann = || json!({"id": "7", "email": EMAIL, "name": NAME});
    let request = || request(Method::POST, "/customer", &[("idempotency-key", "k")], Some(ann()));
    instance.ask(request()).await.expect(201);
    assert!(!instance.table.stored().await.contains(NAME));
    assert_eq!(instance.ask(request()).await.expect(201).body["state"]["name"], NAME);
    instance.post("/customer/7/commands", json!({"command": "ForgetCustomer"})).await.expect(200);
    assert_eq!(instance.ask(request()).await.expect(201).body["state"]["name"], Value::Null);
}

/// An instance with the view, and another router over the same tables.
async fn with_view() -> (Instance, Router) {
    let mut instance = Instance::start().await;
    let views = || Projections::default().with::<Names>().unwrap();
    let api = |store| Api::new(aggregates::registry().unwrap(), store, settings());
    instance.table.views().await;
    instance.router = router(api(instance.table.store()).with_views(views(), instance.table.direct_views()));
    let other = router(api(instance.table.direct_store()).with_views(views(), instance.table.direct_views()));
    (instance, other)
}

/// Folds the events of the customer into the view.
async fn project(instance: &Instance) {
    let projections = Projections::default().with::<Names>().unwrap();
    let events = instance.table.direct_store();
    let views = instance.table.direct_views().with_sealing(events.sealing());
    let aggregates = BTreeMap::from([(AggregateKey::new("customer", "7"), EventRange::default())]);
    let model = projections.following("customer").next().unwrap();
    let projecting = Projecting { model, events: &events, views: &views };
    let cutoff = tokio::time::Instant::now() + Duration::from_secs(60);
    let projected = projecting.project(aggregates, cutoff).await.unwrap();
    assert!(projected.unfinished.is_empty() && projected.suspended.is_empty(), "{projected:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn views_are_sealed_and_forgotten() {
    let (instance, other) = with_view().await;
    register(&instance, "7").await;
    project(&instance).await;
    let rows = instance.table.stored().await;
    assert!(rows.contains("names") && !rows.contains(NAME), "{rows}");
    let row = get(&instance.router, "/views/names/7").await.expect(200);
    assert_eq!(row.body["row"], json!({"name": NAME}));
    let etag = row.header("etag").to_owned();
    instance.post("/customer/7/commands", json!({"command": "ForgetCustomer"})).await.expect(200);
    for router in [&instance.router, &other] {
        assert_eq!(get(router, "/views/names/7").await.expect(200).body["row"], json!({"name": null}));
    }
    // The row is as it was, until the projection has rewritten it.
    let again = async || send(&other, Method::GET, "/views/names/7", &[("if-none-match", &etag)], None).await;
    again().await.expect(304);
    project(&instance).await;
    assert_eq!(again().await.expect(200).body["row"], json!({"name": null}));
    let views = instance.table.raw.scan().table_name(VIEWS_TABLE).send().await.unwrap();
    let mut rows = views.items().iter().filter(|row| text(row, "pk").starts_with("VIEW#"));
    assert!(rows.all(|row| !text(row, "row").contains("sealed")), "{views:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn value_from_before_its_field_was_personal_is_readable_and_null_once_forgotten() {
    let (instance, other) = with_view().await;
    register(&instance, "7").await;
    let plain = AttributeValue::S(json!({"email": EMAIL, "name": NAME}).to_string());
    let key = AggregateKey::new("customer", "7");
    instance.table.tamper(&key, FIRST, [("data", plain)]).await;
    assert_eq!(get(&other, "/customer/7").await.expect(200).body["state"]["name"], NAME);
    project(&instance).await;
    assert_eq!(get(&other, "/views/names/7").await.expect(200).body["row"], json!({"name": NAME}));
    instance.post("/customer/7/commands", json!({"command": "ForgetCustomer"})).await.expect(200);
    for router in [&instance.router, &other, &instance.beside()] {
        assert_eq!(get(router, "/customer/7").await.expect(200).body["state"]["name"], Value::Null);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_key_is_an_error() {
    let instance = Instance::start().await;
    register(&instance, "7").await;
    let delete = instance.table.raw.delete_item().table_name(KEYS_TABLE);
    delete.key("pk", AttributeValue::S("customer/7".to_owned())).send().await.unwrap();
    get(&instance.beside(), "/customer/7").await.expect(500);
    assert_eq!(instance.get("/customer/7").await.expect(200).body["state"]["name"], NAME);
    // It is left out of the feed, which goes on.
    register_other(&instance).await;
    let feed = get(&instance.beside(), "/events?type=CustomerRegistered").await.expect(200);
    assert_eq!(feed.body["events"].as_array().unwrap().len(), 1, "{}", feed.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_keys_are_an_error_and_never_forgotten() {
    let (instance, _) = with_view().await;
    let ann = json!({"id": "7", "email": EMAIL, "name": NAME});
    let register = request(Method::POST, "/customer", &[("idempotency-key", "k")], Some(ann.clone()));
    instance.ask(register).await.expect(201);
    project(&instance).await;
    let aws = aws_config_at(instance.table.engine.url());
    let without = EventStore::new(&aws, instance.table.direct_store().settings().clone());
    let api = Api::new(aggregates::registry().unwrap(), without, settings());
    let views = Projections::default().with::<Names>().unwrap();
    let without = router(api.with_views(views, instance.table.direct_views()));
    for path in ["/customer/7", "/customer/7?version=1", "/views/names/7", "/views/names"] {
        get(&without, path).await.expect(500);
    }
    send(&without, Method::POST, "/customer", &[("idempotency-key", "k")], Some(ann)).await.expect(500);
    for path in ["/customer/7/events", "/events?type=CustomerRegistered"] {
        let feed = get(&without, path).await.expect(200);
        assert_eq!((&feed.body["events"], feed.body["unreadable"].as_array().unwrap().len()), (&json!([]), 1));
    }
    // A service that does not respond is available later.
    let unreachable = with_keys(instance.table.direct_store(), "http://127.0.0.1:9");
    let unreachable = router(Api::new(aggregates::registry().unwrap(), unreachable, settings()));
    get(&unreachable, "/customer/7").await.expect(503);
}

#[tokio::test(flavor = "multi_thread")]
async fn key_of_the_stack_is_not_made_again() {
    let instance = Instance::start().await;
    register(&instance, "7").await;
    let key = || AttributeValue::S("#KEY".to_owned());
    instance.table.raw.delete_item().table_name(KEYS_TABLE).key("pk", key()).send().await.unwrap();
    get(&instance.beside(), "/customer/7").await.expect(500);
    get(&instance.beside(), &format!("/customer?claim=personal-email:{EMAIL}")).await.expect(500);
    let bob = json!({"id": "8", "email": "bob@example.com", "name": "Bob"});
    send(&instance.beside(), Method::POST, "/customer", &[], Some(bob)).await.expect(500);
    let row = instance.table.raw.get_item().table_name(KEYS_TABLE).key("pk", key()).send().await.unwrap();
    assert_eq!(row.item, None);
}

async fn register_other(instance: &Instance) {
    let bob = json!({"id": "8", "email": "bob@example.com", "name": "Bob"});
    instance.post("/customer", bob).await.expect(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn reserved_members_are_rejected() {
    let instance = Instance::start().await;
    for body in [r#"{"$personal":{"value":"x"}}"#, r#"{"\u0024subject":"customer/1"}"#] {
        let name: Value = serde_json::from_str(body).unwrap();
        let body = json!({"id": "7", "email": EMAIL, "name": name});
        instance.post("/customer", body).await.expect(400);
    }
}
