//! The epoch in the metadata of messages: the setting of the command handler that appended them.

use axum::http::Method;
use daybook_local_aws::dynamodb::LocalDynamoDb;
use daybook_table::AggregateKey;
use serde_json::{Value, json};

use crate::instance::{Instance, send, settings};

async fn in_epoch(engine: LocalDynamoDb, epoch: &str) -> Instance {
    let registry = aggregates::registry().unwrap();
    Instance::with_environment(engine, registry, settings(), &[("EPOCH", epoch)]).await
}

/// The epoch and `messageSeq` of each message of a to-do.
async fn positions(instance: &Instance) -> Vec<(u64, u64)> {
    let rows = instance.table.rows(&AggregateKey::new("todo", "1"), "OUTBOX#").await;
    let metadata = rows.iter().map(|row| serde_json::from_str::<Value>(row["detail"].as_s().unwrap()).unwrap());
    let number = |detail: &Value, name: &str| detail["metadata"][name].as_u64().unwrap();
    metadata.map(|detail| (number(&detail, "epoch"), number(&detail, "messageSeq"))).collect()
}

#[tokio::test]
async fn message_has_the_epoch_of_the_command_handler_that_appended_it() {
    let engine = LocalDynamoDb::in_memory().await.unwrap();
    let first = in_epoch(engine, "1").await;
    first.post("/todo", json!({"id": "1", "title": "TODO", "message": ""})).await.expect(201);
    let second = in_epoch(first.table.engine, "7").await;
    second.post("/todo/1", json!({"title": "TODO", "message": "more"})).await.expect(200);
    assert_eq!(positions(&second).await, [(1, 1), (7, 2)]);
}

#[tokio::test]
async fn repeated_request_in_a_later_epoch_appends_no_message() {
    let mut engine = LocalDynamoDb::in_memory().await.unwrap();
    let body = json!({"id": "1", "title": "TODO", "message": ""});
    let mut bodies = Vec::new();
    for epoch in ["1", "2"] {
        let instance = in_epoch(engine, epoch).await;
        let headers = [("idempotency-key", "k")];
        let response = send(&instance.router, Method::POST, "/todo", &headers, Some(body.clone())).await.expect(201);
        bodies.push(response.body);
        assert_eq!(positions(&instance).await, [(1, 1)]);
        engine = instance.table.engine;
    }
    assert_eq!(bodies[0], bodies[1]);
}

/// The `previousEpoch` of each message of a to-do.
async fn previous_epochs(instance: &Instance) -> Vec<Value> {
    let rows = instance.table.rows(&AggregateKey::new("todo", "1"), "OUTBOX#").await;
    let details = rows.iter().map(|row| serde_json::from_str::<Value>(row["detail"].as_s().unwrap()).unwrap());
    details.map(|detail| detail["metadata"]["previousEpoch"].clone()).collect()
}

async fn update(instance: &Instance, message: &str) {
    instance.post("/todo/1", json!({"title": "TODO", "message": message})).await.expect(200);
}

#[tokio::test]
async fn first_message_of_an_aggregate_in_an_epoch_names_the_epoch_of_the_message_before_it() {
    let first = in_epoch(LocalDynamoDb::in_memory().await.unwrap(), "1").await;
    first.post("/todo", json!({"id": "1", "title": "TODO", "message": ""})).await.expect(201);
    update(&first, "A").await;
    let third = in_epoch(first.table.engine, "3").await;
    update(&third, "B").await;
    update(&third, "C").await;
    // Other instances know it from the rows, or from a snapshot and the row of its event.
    let same = in_epoch(third.table.engine, "3").await;
    update(&same, "D").await;
    let key = AggregateKey::new("todo", "1");
    let registry = aggregates::registry().unwrap();
    let model = registry.get("todo").unwrap();
    same.table.direct_store().take_snapshot(model, &key, jiff::Timestamp::now()).await.unwrap();
    let snapshot = in_epoch(same.table.engine, "3").await;
    update(&snapshot, "E").await;
    let fifth = in_epoch(snapshot.table.engine, "5").await;
    update(&fifth, "F").await;
    let none = Value::Null;
    let expected = [&none, &none, &json!(1), &none, &none, &none, &json!(3)].map(Clone::clone);
    assert_eq!(previous_epochs(&fifth).await, expected);
}

#[tokio::test]
async fn rows_of_epoch_1_and_of_new_aggregates_have_no_attribute_that_the_previous_release_does_not_write() {
    let first = in_epoch(LocalDynamoDb::in_memory().await.unwrap(), "1").await;
    first.post("/todo", json!({"id": "1", "title": "TODO", "message": ""})).await.expect(201);
    update(&first, "A").await;
    let key = AggregateKey::new("todo", "1");
    for row in first.table.rows(&key, "EVENT#").await {
        assert!(!row.contains_key("messageEpoch"), "{row:?}");
    }
    assert_eq!(previous_epochs(&first).await, [Value::Null, Value::Null]);
    let second = in_epoch(LocalDynamoDb::in_memory().await.unwrap(), "2").await;
    second.post("/todo", json!({"id": "1", "title": "TODO", "message": ""})).await.expect(201);
    assert_eq!(previous_epochs(&second).await, [Value::Null]);
}
