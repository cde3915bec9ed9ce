//! The metrics of requests, as CloudWatch reads them. They are collected for the whole process, so this is its only test.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use aws_sdk_dynamodb::types::AttributeValue;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use daybook_command_handler::{Api, ApiSettings, router};
use daybook_function_runtime::Metrics;
use daybook_settings::Environment;
use daybook_table::{AggregateKey, keys};
use daybook_test_support::commands::execute;
use daybook_test_support::table::TestTable;
use lambda_http::tower::ServiceExt;
use serde_json::{Value, json};

/// The counts of the line of metrics, by their names; `None` if no line was written.
fn counted(metrics: Metrics) -> Option<Value> {
    let mut written = Vec::new();
    metrics.write_to(&mut written);
    let lines: Vec<Value> = String::from_utf8(written).unwrap().lines().map(|line| line.parse().unwrap()).collect();
    assert!(lines.len() <= 1, "{lines:?}");
    let line = lines.into_iter().next()?;
    let directive = &line["_aws"]["CloudWatchMetrics"][0];
    assert_eq!((&directive["Namespace"], &directive["Dimensions"]), (&json!("Daybook/test"), &json!([[]])));
    let counts = directive["Metrics"].as_array().unwrap().iter().map(|metric| {
        assert_eq!(metric["Unit"], "Count");
        let name = metric["Name"].as_str().unwrap();
        (name.to_owned(), line[name].clone())
    });
    Some(counts.collect())
}

#[tokio::test]
async fn requests_count_unreadable_rows_executed_commands_and_appended_messages() {
    let metrics = Metrics::collect(&Environment::from_iter([("METRICS_NAMESPACE", "Daybook/test")]));
    let table = TestTable::new().await;
    let registry = aggregates::registry().unwrap();
    let key = AggregateKey::new("account", "1");
    let pay = |amount: i64| ("RecordTransaction", json!({"desc": "", "amount": amount}));
    let commands = [("OpenAccount", json!({})), pay(1), pay(2)];
    execute(&table.direct_store(), registry.get("account").unwrap(), &key, &commands).await.unwrap();
    let settings = ApiSettings::read(&Environment::default()).unwrap();
    let api = router(Api::new(registry, table.store(), settings));
    let read = async || {
        let request = Request::get("/account/1/events").body(Body::empty()).unwrap();
        assert_eq!(api.clone().oneshot(request).await.unwrap().status(), StatusCode::OK);
    };
    read().await;
    assert_eq!(counted(metrics), None);
    for seq_num in [1, 3] {
        table.tamper(&key, &keys::event_sk(seq_num), [("data", AttributeValue::S("{".to_owned()))]).await;
    }
    read().await;
    read().await;
    assert_eq!(counted(metrics), Some(json!({"RowsUnreadable": 4})));
    assert_eq!(counted(metrics), None);

    let post = async |path: &str, key: Option<&str>, body: Value| {
        let mut request = Request::post(path).header("content-type", "application/json");
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let response = api.clone().oneshot(request.body(Body::from(body.to_string())).unwrap()).await.unwrap();
        response.status()
    };
    let wrote = |commands: u64, messages: u64| match messages {
        0 => Some(json!({"CommandsExecuted": commands})),
        _ => Some(json!({"CommandsExecuted": commands, "MessagesAppended": messages})),
    };
    let todo = |title: &str| json!({"id": "1", "title": title, "message": "B"});
    // Both commands of an array publish a message.
    let commands = json!([
        {"command": "CreateTodo", "data": {"title": "A", "message": "B"}},
        {"command": "UpdateTodo", "data": {"title": "C", "message": "B"}},
    ]);
    assert_eq!(post("/todo/2/commands", None, commands).await, StatusCode::CREATED);
    assert_eq!(counted(metrics), wrote(2, 2));
    // A repeated request executes nothing, and neither does a conflict.
    assert_eq!(post("/todo", Some("k"), todo("A")).await, StatusCode::CREATED);
    assert_eq!(counted(metrics), wrote(1, 1));
    assert_eq!(post("/todo", Some("k"), todo("A")).await, StatusCode::CREATED);
    assert_eq!(counted(metrics), None);
    assert_eq!(post("/todo", None, todo("A")).await, StatusCode::CONFLICT);
    assert_eq!(counted(metrics), None);
    // An opened account and a payment publish nothing, but a rejected payment that is recorded does.
    assert_eq!(post("/account", None, json!({"id": "2"})).await, StatusCode::CREATED);
    let pay = |amount: i64| json!({"command": "RecordTransaction", "data": {"desc": "", "amount": amount}});
    assert_eq!(post("/account/2/commands", None, pay(1)).await, StatusCode::OK);
    assert_eq!(counted(metrics), wrote(2, 0));
    // Repeated, it is decided again, and only the append finds the stored response.
    assert_eq!(post("/account/2/commands", Some("p"), pay(-5_000)).await, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(counted(metrics), wrote(1, 1));
    assert_eq!(post("/account/2/commands", Some("p"), pay(-5_000)).await, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(counted(metrics), None);
}
