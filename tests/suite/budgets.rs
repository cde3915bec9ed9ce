//! What a request costs: calls and capacity units, counted at the proxy.

use axum::http::Method;
use daybook_event_store::SnapshotOutcome;
use daybook_table::AggregateKey;
use daybook_test_support::log;
use jiff::Timestamp;
use serde_json::{Value, json};
use tracing::Instrument;

use crate::instance::{Instance, send};

/// Sends a request that succeeds. Returns its calls, and their capacity units of the table and of the index.
async fn cost(instance: &Instance, method: Method, path: &str, body: Option<Value>) -> (Vec<String>, f64, f64) {
    let response = send(&instance.router, method, path, &[], body).await;
    assert!(response.status.is_success(), "{}", response.text);
    let calls = instance.table.proxy.take_calls();
    let units = |of: fn(&daybook_test_support::fault_proxy::RecordedCall) -> f64| calls.iter().map(of).sum();
    let (table, index) = (units(|call| call.table_units), units(|call| call.index_units));
    let mut operations: Vec<_> = calls.into_iter().map(|call| call.operation).collect();
    operations.sort_unstable();
    (operations, table, index)
}

fn todo(id: &str) -> Value {
    json!({"id": id, "title": "TODO", "message": "Make coffee"})
}

fn update(message: &str) -> Value {
    json!({"title": "TODO", "message": message})
}

#[tokio::test(flavor = "multi_thread")]
async fn append_of_one_event_and_one_message_costs_six_table_units_and_one_index_unit() {
    let warm = Instance::start().await;
    let created = cost(&warm, Method::POST, "/todo", Some(todo("1"))).await;
    assert_eq!(created, (vec!["TransactWriteItems".to_owned()], 6.0, 1.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn actor_and_trace_of_an_event_cost_no_further_units() {
    let warm = Instance::start().await;
    let body = todo("1").to_string();
    let mut request = axum::http::Request::post("/todo").header("content-type", "application/json");
    for (name, value) in [
        ("x-correlation-id", "01M7XZT6PZEDC7MQFQ9XT58J16"),
        ("x-causation-id", "01M7XZT6PZEDC7MQFQ9XT58J17"),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        (
            "x-amzn-trace-id",
            "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1;Lineage=1:1b0cd6a3:0",
        ),
    ] {
        request = request.header(name, value);
    }
    warm.ask(request.body(body.into()).unwrap()).await.expect(201);
    let calls = warm.table.proxy.take_calls();
    let (table, index): (Vec<_>, Vec<_>) = calls.iter().map(|call| (call.table_units, call.index_units)).unzip();
    assert_eq!((table, index), (vec![6.0], vec![1.0]));
}

#[tokio::test(flavor = "multi_thread")]
async fn append_without_a_collector_asks_for_no_capacity_units() {
    // Starts a subscriber that has the span of Lambda's runtime, as the functions have one for their logs.
    log::take_all();
    let span = tracing::info_span!("Lambda runtime invoke");
    assert!(!span.is_disabled());
    let warm = Instance::start().await;
    let response = send(&warm.router, Method::POST, "/todo", &[], Some(todo("1"))).instrument(span).await;
    assert_eq!(response.status, 201);
    let calls = warm.table.proxy.take_calls();
    assert_eq!((calls.len(), calls[0].request.get("ReturnConsumedCapacity")), (1, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn command_on_a_warm_instance_takes_one_round_trip() {
    let warm = Instance::start().await;
    cost(&warm, Method::POST, "/todo", Some(todo("1"))).await;
    for message in ["a", "b", "c"] {
        let (calls, table, index) = cost(&warm, Method::POST, "/todo/1", Some(update(message))).await;
        assert_eq!((calls, table, index), (vec!["TransactWriteItems".to_owned()], 6.0, 1.0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn command_on_a_cold_instance_reads_snapshot_and_events_concurrently() {
    let warm = Instance::start().await;
    cost(&warm, Method::POST, "/todo", Some(todo("1"))).await;
    let cold = Instance::over(warm.table.engine).await;
    let (calls, ..) = cost(&cold, Method::POST, "/todo/1", Some(update("a"))).await;
    assert_eq!(calls, ["GetItem", "Query", "TransactWriteItems"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn read_on_a_cold_instance_three_events_after_the_snapshot_takes_a_few_read_units() {
    let warm = Instance::start().await;
    cost(&warm, Method::POST, "/account", Some(json!({"id": "1"}))).await;
    let pay = async |times| {
        let payment = json!({"command": "RecordTransaction", "data": {"desc": "payment", "amount": 1}});
        cost(&warm, Method::POST, "/account/1/commands", Some(json!(vec![payment; times]))).await;
    };
    for _ in 0..11 {
        pay(90).await;
    }
    pay(9).await;
    let (registry, key) = (aggregates::registry().unwrap(), AggregateKey::new("account", "1"));
    let model = registry.get("account").unwrap();
    let taken = warm.table.direct_store().take_snapshot(model, &key, Timestamp::now()).await.unwrap();
    assert_eq!(taken, SnapshotOutcome::Taken { version: 1_000 });
    pay(3).await;
    let cold = Instance::over(warm.table.engine).await;
    let (calls, units, _) = cost(&cold, Method::GET, "/account/1", None).await;
    assert_eq!(calls, ["GetItem", "Query"]);
    assert!(units <= 5.0, "{units}");
}

#[tokio::test(flavor = "multi_thread")]
async fn read_on_a_warm_instance_takes_one_query_for_newer_events() {
    let warm = Instance::start().await;
    cost(&warm, Method::POST, "/todo", Some(todo("1"))).await;
    let (calls, units, _) = cost(&warm, Method::GET, "/todo/1", None).await;
    assert_eq!((calls, units), (vec!["Query".to_owned()], 1.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_commands_to_one_aggregate_share_an_append() {
    let warm = Instance::start().await;
    cost(&warm, Method::POST, "/account", Some(json!({"id": "1"}))).await;
    let pay = async |amount: i64| {
        let payment = json!({"command": "RecordTransaction", "data": {"desc": "", "amount": amount}});
        warm.post("/account/1/commands", payment).await.expect(200)
    };
    let mut responses = futures_util::future::join_all((1..=64).map(pay)).await;
    responses.sort_by_key(|response| response.body["version"].as_u64());
    let mut balance = 0;
    for (version, response) in (2..).zip(responses) {
        balance += response.body["events"][0]["data"]["amount"].as_i64().unwrap();
        assert_eq!((&response.body["version"], &response.body["state"]["balance"]), (&json!(version), &json!(balance)));
        assert_eq!(response.header("etag"), format!("\"{version}-1\""));
    }
    // The first ones are appended alone, if the next ones have not arrived yet. The others wait for these and share an
    // append: 3 units for each, and 2 for the metadata of all.
    let calls = warm.table.proxy.take_calls();
    assert!(calls.iter().all(|call| call.operation == "TransactWriteItems"), "{calls:?}");
    let units: f64 = calls.iter().map(|call| call.table_units + call.index_units).sum();
    assert!(units <= 3.4 * 64.0, "{units} units in {} calls", calls.len());
}
