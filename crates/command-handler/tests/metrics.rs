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

/// The count in the line of metrics; `None` if no line was written.
fn counted(metrics: Metrics) -> Option<Value> {
    let mut written = Vec::new();
    metrics.write_to(&mut written);
    let lines: Vec<Value> = String::from_utf8(written).unwrap().lines().map(|line| line.parse().unwrap()).collect();
    assert!(lines.len() <= 1, "{lines:?}");
    let line = lines.into_iter().next()?;
    let directive = &line["_aws"]["CloudWatchMetrics"][0];
    assert_eq!((&directive["Namespace"], &directive["Dimensions"]), (&json!("Daybook/test"), &json!([[]])));
    assert_eq!(directive["Metrics"], json!([{"Name": "RowsUnreadable", "Unit": "Count"}]));
    Some(line["RowsUnreadable"].clone())
}

#[tokio::test]
async fn page_counts_the_rows_that_it_leaves_out() {
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
    assert_eq!(counted(metrics), Some(json!(4)));
    assert_eq!(counted(metrics), None);
}
