//! The canary of deployments: the calls of a deployment's hook work, leave nothing behind that others see, and nobody else
//! can make them.
//!
//! `canary/deployments.json` has the events that the hook sends in its first two deployments, and the responses. The tests
//! here send them to the function. `.ci/check-hook` tests that the hook sends them.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use aws_sdk_dynamodb::types::AttributeValue;
use axum::Router;
use axum::http::Method;
use clap::Parser;
use daybook_cli::commands::OperatorCommand;
use daybook_cli::operator::{Exit, Interrupt, OperatorContext};
use daybook_command_handler::{Api, ApiSettings, router};
use daybook_local_aws::dynamodb::LocalDynamoDb;
use daybook_operations::Stack;
use daybook_table::AggregateKey;
use daybook_test_support::fault_proxy::InjectedFault;
use daybook_test_support::table::TABLE;
use serde_json::{Value, json};
use suite_tests::workspace;

use crate::fixtures::call_api;
use crate::instance::{Instance, send, settings};

/// The calls of the hook in each of its deployments.
pub(crate) fn deployments() -> [Vec<Value>; 2] {
    let file = workspace().join("tests/suite/canary/deployments.json");
    let deployments: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let calls: Vec<_> = deployments.iter().map(|one| one["calls"].as_array().unwrap().clone()).collect();
    calls.try_into().unwrap()
}

/// Sends an event of the hook. Returns the status and the body of the response.
async fn call(router: &Router, event: &Value) -> (u64, Value) {
    let response = call_api(router, &event.to_string()).await;
    let body = serde_json::from_str(response["body"].as_str().unwrap()).unwrap();
    (response["statusCode"].as_u64().unwrap(), body)
}

/// Sends the hook's events of a deployment, and expects the recorded responses.
async fn deploy(router: &Router, calls: &[Value]) {
    for each in calls {
        let (status, body) = call(router, &each["event"]).await;
        assert_eq!(status, each["status"].as_u64().unwrap(), "{body:#}");
        for (name, expected) in each["body"].as_object().unwrap() {
            assert_eq!(body[name], *expected, "{body:#}");
        }
    }
}

fn canary() -> AggregateKey {
    AggregateKey::new("__canary", "deployments")
}

#[tokio::test(flavor = "multi_thread")]
async fn function_executes_the_calls_of_the_hook_with_few_calls_of_its_own() {
    // Whatever the settings of the API are.
    let settings = ApiSettings { require_if_match: true, base_path: "/v1".to_owned(), ..settings() };
    let engine = LocalDynamoDb::in_memory().await.unwrap();
    let instance = Instance::with(engine, aggregates::registry().unwrap(), settings.clone()).await;
    let [first, second] = deployments();
    deploy(&instance.router, &first).await;
    let operations = instance.table.operations();
    assert!(operations.len() <= 7, "{operations:?}");

    // The next version has no cached state, and reads what the version before has written.
    let next = router(Api::new(aggregates::registry().unwrap(), instance.table.store(), settings));
    deploy(&next, &second).await;
    let calls = instance.table.proxy.take_calls();
    let units: f64 = calls.iter().map(|call| call.table_units).sum();
    let mut operations: Vec<_> = calls.into_iter().map(|call| call.operation).collect();
    operations.sort();
    assert_eq!(operations, ["GetItem", "Query", "Query", "TransactWriteItems"]);
    assert!(units <= 10.0, "{units}");
}

#[tokio::test(flavor = "multi_thread")]
async fn canary_is_in_no_feed_no_list_and_no_message_and_is_due_for_no_snapshot() {
    let engine = LocalDynamoDb::in_memory().await.unwrap();
    let registry = aggregates::registry().unwrap();
    let every = [("SNAPSHOT_EVERY", "1"), ("EVENT_TYPE_SHARDS", "4")];
    let instance = Instance::with_environment(engine, registry, settings(), &every).await;
    for calls in deployments() {
        deploy(&instance.router, &calls).await;
    }
    let rows = instance.table.rows(&canary(), "").await;
    let names: Vec<_> = rows.iter().map(|row| row["sk"].as_s().unwrap().as_str()).collect();
    assert_eq!(names, ["#METADATA", "EVENT#000000000001", "EVENT#000000000002"]);
    for row in &rows {
        for attribute in ["gsi1pk", "snapshotDue", "ttl"] {
            assert!(!row.contains_key(attribute), "{row:?}");
        }
    }
    // The index has no row at all, so no feed, list or operator command can find the canary.
    let index = instance.table.raw.scan().table_name(TABLE).index_name("gsi1").send().await.unwrap();
    assert_eq!(index.items(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_the_api_do_not_reach_the_canary() {
    let instance = Instance::start().await;
    for calls in deployments() {
        deploy(&instance.router, &calls).await;
    }
    let before = instance.table.rows(&canary(), "").await;
    for mut event in deployments().into_iter().flatten().map(|call| call["event"].clone()) {
        // API Gateway sets the id. A client can name it anywhere else.
        let hook = event["requestContext"]["apiId"].take();
        event["headers"]["x-apigateway-api-id"] = hook.clone();
        event["headers"]["apiid"] = hook;
        for id in [json!("a1b2c3d4e5"), Value::Null] {
            event["requestContext"]["apiId"] = id;
            let (status, body) = call(&instance.router, &event).await;
            assert_eq!((status, &body["type"]), (404, &json!("urn:daybook:problem:unknown-type")), "{body:#}");
        }
        event["requestContext"].as_object_mut().unwrap().remove("apiId");
        assert_eq!(call(&instance.router, &event).await.0, 404);
    }
    for path in ["/__canary", "/__canary/deployments", "/__canary/deployments/events"] {
        send(&instance.router, Method::GET, path, &[], None).await.expect_problem(404, "unknown-type");
    }
    let feed = send(&instance.router, Method::GET, "/events?type=DeploymentRecorded", &[], None).await;
    assert!(feed.status.is_client_error(), "{}", feed.text);
    assert!(!send(&instance.router, Method::GET, "/openapi.json", &[], None).await.text.contains("anary"));
    assert_eq!(instance.table.rows(&canary(), "").await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn hook_reaches_nothing_but_the_canary() {
    let instance = Instance::start().await;
    instance.post("/todo", json!({"id": "1", "title": "A", "message": "B"})).await.expect(201);
    let [calls, _] = deployments();
    for (method, path) in [("GET", "/todo/1"), ("POST", "/todo"), ("DELETE", "/todo/1"), ("GET", "/todo")] {
        let mut event = calls[0]["event"].clone();
        event["rawPath"] = json!(path);
        event["requestContext"]["http"] = json!({"method": method, "path": path});
        assert_eq!(call(&instance.router, &event).await.0, 404, "{method} {path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hook_gets_the_error_of_a_version_that_cannot_write_or_not_read_its_own_rows() {
    let instance = Instance::start().await;
    let [first, second] = deployments();
    deploy(&instance.router, &first).await;
    // The instance has the state in its memory, but the hook reads the rows.
    instance.table.tamper(&canary(), "EVENT#000000000001", [("data", AttributeValue::S("{".to_owned()))]).await;
    assert_eq!(call(&instance.router, &first[2]["event"]).await.0, 500);
    instance
        .table
        .proxy
        .fail_next("TransactWriteItems", InjectedFault::Refuse { status: 400, code: "AccessDeniedException" });
    assert_eq!(call(&instance.router, &second[0]["event"]).await.0, 500);
}

// Operator commands.

#[derive(Parser)]
struct Line {
    #[command(subcommand)]
    command: OperatorCommand,
}

/// Captured standard output.
#[derive(Clone, Default)]
struct Screen(Arc<Mutex<Vec<u8>>>);

impl Write for Screen {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The output of an operator command that finds nothing wrong.
async fn daybook(instance: &Instance, line: &str) -> String {
    let screen = Screen::default();
    let command = Line::try_parse_from(std::iter::once("daybook").chain(line.split(' '))).unwrap().command;
    let url = instance.table.engine.url().to_owned();
    let environment = [("AWS_ENDPOINT_URL_DYNAMODB", url.as_str()), ("TABLE_NAME", TABLE)].into_iter().collect();
    let registry = aggregates::registry().unwrap();
    let stack = Stack::new(environment, registry, projections::projections, Interrupt::new());
    let mut context = OperatorContext { stack, out: Box::new(screen.clone()) };
    assert_eq!(command.run(&mut context).await.unwrap(), Exit::Clean, "{line}");
    let text = screen.0.lock().unwrap().clone();
    String::from_utf8(text).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_commands_do_not_see_the_canary() {
    let instance = Instance::start().await;
    instance.post("/todo", json!({"id": "1", "title": "A", "message": "B"})).await.expect(201);
    for calls in deployments() {
        deploy(&instance.router, &calls).await;
    }
    let verified = daybook(&instance, "verify").await;
    assert!(verified.starts_with("verified 1 aggregates: 1 events, 1 messages"), "{verified}");
    let exported = daybook(&instance, "export -").await;
    assert!(exported.contains("todo") && !exported.contains("anary"), "{exported}");
    let rebuilt = daybook(&instance, "snapshot rebuild").await;
    assert!(!rebuilt.contains("anary"), "{rebuilt}");
    let rows = instance.table.rows(&canary(), "").await;
    assert_eq!(rows.len(), 3, "{rows:?}");
}
