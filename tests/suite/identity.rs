//! Actor, source address and trace of a command: in the event and, without the address, on the bus.

use daybook_command_handler::{Api, ApiSettings, router};
use daybook_event_store::{EventStore, StoreSettings};
use daybook_function_runtime::aws_config_at;
use daybook_local_aws::messaging::Delivered;
use reqwest::Method;
use serde_json::{Value, json};
use suite_tests::Suite;

use crate::fixtures::run_api_event;
use crate::instance::settings;

const TRACEPARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const TRACE_HEADER: &str = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1";

async fn create(suite: &Suite, headers: &[(&str, &str)]) -> Value {
    let headers: Vec<_> = headers.iter().copied().chain([("content-type", "application/json")]).collect();
    let body = json!({"id": "1", "title": "TODO", "message": ""}).to_string();
    suite.send(Method::POST, "/todo", &headers, Some(&body)).await.expect(201).body
}

fn metadata(message: &Delivered) -> Value {
    serde_json::from_str::<Value>(&message.detail).unwrap()["metadata"].take()
}

#[tokio::test(flavor = "multi_thread")]
async fn trace_of_a_request_is_passed_on_to_the_bus() {
    let suite = Suite::start().await;
    let belongs = [
        ("x-correlation-id", "sale-7"),
        ("x-causation-id", "click-9"),
        ("traceparent", TRACEPARENT),
        ("x-amzn-trace-id", TRACE_HEADER),
    ];
    let created = create(&suite, &belongs).await;
    let meta = json!({
        "correlationId": "sale-7", "causationId": "click-9", "traceparent": TRACEPARENT, "traceHeader": TRACE_HEADER,
    });
    assert_eq!(created["events"][0]["meta"], meta);
    assert_eq!(suite.get("/todo/1/events").await.expect(200).body["events"][0]["meta"], meta);

    let message = suite.messages_of("todo/1", 1).await.remove(0);
    assert_eq!(message.trace_header.as_deref(), Some(TRACE_HEADER));
    let published = metadata(&message);
    for (name, value) in meta.as_object().unwrap() {
        assert_eq!(&published[name], value, "{published}");
    }
    // The local stack's list of bus messages contains the trace too.
    let bus = suite.get("/_dev/bus").await.expect(200).body;
    assert_eq!(bus[0]["traceHeader"], TRACE_HEADER);
}

#[tokio::test(flavor = "multi_thread")]
async fn request_with_an_invalid_trace_is_accepted_without_it() {
    for odd in ["", "two words", "Root=1", "00-1-2-01", &"x".repeat(2_000)] {
        let suite = Suite::start().await;
        let created = create(&suite, &[("traceparent", odd), ("x-amzn-trace-id", odd)]).await;
        let message = suite.messages_of("todo/1", 1).await.remove(0);
        assert_eq!(message.trace_header, None, "{odd}");
        for from in [&created["events"][0]["meta"], &metadata(&message)] {
            assert!(from["traceparent"].is_null() && from["traceHeader"].is_null(), "{odd}: {from}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn actor_of_an_event_is_the_caller_of_the_authorizer() {
    let suite = Suite::start().await;
    let of_store = StoreSettings::new(suite.stack.table_name());
    let store = EventStore::new(&aws_config_at(suite.stack.dynamodb_url()), of_store);
    let settings = ApiSettings { record_source_ip: true, ..settings() };
    let api = router(Api::new(aggregates::registry().unwrap(), store, settings));
    // Authenticated by IAM, and by a JWT.
    for (event, path, actor) in [
        ("place-order", "/order/2026-0815", "arn:aws:sts::123456789012:assumed-role/teller/jane"),
        ("create-todo", "/todo/groceries", "user-4711"),
    ] {
        run_api_event(&api, event).await;
        // The request to the local stack names the owner of the to-do.
        let headers = [("x-daybook-caller", actor)];
        let events = suite.send(Method::GET, &format!("{path}/events"), &headers, None).await.expect(200).body;
        let meta = &events["events"][0]["meta"];
        assert_eq!((&meta["actor"], &meta["sourceIp"]), (&json!(actor), &json!("203.0.113.7")));
        let published = metadata(&suite.messages_of(&path[1..], 1).await[0]);
        // Only the event contains the address, because the bus has other readers.
        assert_eq!((&published["actor"], &published["sourceIp"]), (&json!(actor), &Value::Null));
    }
}
