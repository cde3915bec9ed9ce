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
