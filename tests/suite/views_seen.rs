//! Reads of views that wait for an event, with the parameter `seen`.

use std::time::Duration;

use axum::http::Method;
use daybook_command_handler::ApiSettings;
use lambda_http::RequestExt;
use serde_json::json;
use suite_tests::document::Document;

use crate::instance::{request, settings, time_left};
use crate::views::{get_if_none_match, instance, instance_with, order_command, place, project, transact};

#[tokio::test(flavor = "multi_thread")]
async fn read_with_seen_shows_an_event_that_is_folded_without_waiting() {
    let instance = instance().await;
    place(&instance, "1", 4500).await;
    instance.table.operations();
    let row = instance.get("/views/orders-by-status/placed?seen=order/1@1").await.expect(200);
    assert_eq!(row.body["row"], json!({"orders": 1, "total": 4500}));
    assert_eq!(instance.table.operations(), ["BatchGetItem", "TransactGetItems"]);
    get_if_none_match(&instance, "/views/orders-by-status/placed?seen=order/1@1", row.header("etag")).await.expect(304);
    instance.table.operations();
    let rows = instance.get("/views/orders-by-status?seen=order/1@1").await.expect(200);
    assert_eq!(rows.body, json!({"rows": [row.body], "cursor": "placed"}));
    assert_eq!(instance.table.operations(), ["BatchGetItem", "Query"]);
    // The other parts of a row are read together.
    transact(&instance, "1", &["x"]).await;
    instance.table.operations();
    instance.get("/views/account-balances/total?seen=account/1@2").await.expect(200);
    assert_eq!(instance.table.operations(), ["BatchGetItem", "BatchGetItem", "TransactGetItems"]);
    // Without `seen`, a row takes one call of its own units, and a list one query.
    instance.get("/views/orders-by-status/placed").await.expect(200);
    instance.get("/views/orders-by-status").await.expect(200);
    let calls = instance.table.proxy.take_calls();
    let cost: Vec<_> = calls.iter().map(|call| (call.operation.as_str(), call.table_units)).collect();
    assert_eq!(cost, [("BatchGetItem", 1.0), ("Query", 1.0)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn read_with_seen_waits_until_the_event_is_folded() {
    let instance = instance_with(ApiSettings { seen_wait: Duration::from_secs(20), ..settings() }).await;
    place(&instance, "1", 4500).await;
    let later = async || {
        tokio::time::sleep(Duration::from_millis(200)).await;
        project(&instance, "order/1").await;
    };
    order_command(&instance, "1", "ProcessPayment", json!({"amount": 4500})).await;
    let (paid, ()) = tokio::join!(instance.get("/views/orders-by-status/paid?seen=order/1@2"), later());
    let row = json!({"orders": 1, "total": 4500});
    assert_eq!(paid.expect(200).body, json!({"key": "paid", "row": row}));
    order_command(&instance, "1", "ShipOrder", json!({"trackingNumber": "T-1"})).await;
    let (shipped, ()) = tokio::join!(instance.get("/views/orders-by-status?seen=order/1@3"), later());
    assert_eq!(shipped.expect(200).body["rows"], json!([{"key": "shipped", "row": row}]));
}

#[tokio::test(flavor = "multi_thread")]
async fn read_with_seen_that_is_not_folded_in_time_gets_a_503_with_the_position() {
    let instance = instance_with(ApiSettings { seen_wait: Duration::ZERO, ..settings() }).await;
    place(&instance, "123", 4500).await;
    order_command(&instance, "123", "ProcessPayment", json!({"amount": 4500})).await;
    order_command(&instance, "123", "ShipOrder", json!({"trackingNumber": "T-1"})).await;
    project(&instance, "order/123").await;
    order_command(&instance, "123", "DeliverOrder", json!({})).await;
    for path in ["/views/orders-by-status/delivered?seen=order/123@4", "/views/orders-by-status?seen=order/123@4"] {
        instance.table.operations();
        let behind = instance.get(path).await.expect_problem(503, "behind");
        assert_eq!(behind.header("retry-after"), "1");
        assert_eq!((&behind.body["seqNum"], &behind.body["suspended"]), (&json!(3), &json!(false)));
        assert_eq!(&behind.body, &Document::get().json()["components"]["examples"]["Behind"]["value"]);
        assert_eq!(instance.table.operations(), ["BatchGetItem", "Query"]);
    }
    // The time of the request limits the wait, too.
    let instance = instance_with(ApiSettings { seen_wait: Duration::from_secs(20), ..settings() }).await;
    instance.post("/account", json!({"id": "1"})).await.expect(201);
    let hurried = request(Method::GET, "/views/account-balances/total?seen=account/1@1", &[], None);
    let hurried = hurried.with_lambda_context(time_left(Duration::from_secs(2)));
    let behind = instance.ask(hurried).await.expect_problem(503, "behind");
    assert_eq!(behind.body["seqNum"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn seen_of_an_event_that_does_not_exist_is_not_found_without_waiting() {
    let instance = instance_with(ApiSettings { seen_wait: Duration::from_secs(20), ..settings() }).await;
    place(&instance, "1", 4500).await;
    instance.table.operations();
    for (seen, detail) in [
        ("order/1@2", "order/1 has no event 2"),
        ("order/2@1", "order/2 has no event 1"),
        ("order/1@999999999999", "order/1 has no event 999999999999"),
    ] {
        for path in ["/views/orders-by-status/placed", "/views/orders-by-status"] {
            let unknown = instance.get(&format!("{path}?seen={seen}")).await.expect_problem(404, "no-such-version");
            assert_eq!(unknown.body["detail"], detail);
            let calls = instance.table.operations();
            assert!(calls == ["BatchGetItem", "Query"] || calls == ["BatchGetItem"], "{calls:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn read_with_seen_of_a_suspended_aggregate_gets_a_503_at_once() {
    let instance = instance_with(ApiSettings { seen_wait: Duration::from_secs(20), ..settings() }).await;
    // No row can have the second key.
    transact(&instance, "1", &["x", &"x".repeat(513), "y"]).await;
    instance.get("/views/by-description/x?seen=account/1@2").await.expect(200);
    for seen in ["account/1@3", "account/1@4"] {
        for path in ["/views/by-description/x", "/views/by-description"] {
            instance.table.operations();
            let behind = instance.get(&format!("{path}?seen={seen}")).await.expect_problem(503, "behind");
            assert_eq!((&behind.body["seqNum"], &behind.body["suspended"]), (&json!(2), &json!(true)));
            // A wait would read the position again.
            assert_eq!(instance.table.operations(), ["BatchGetItem"]);
        }
    }
    // Other views of the aggregate go on.
    instance.get("/views/account-balances/account:1?seen=account/1@4").await.expect(200);
}
