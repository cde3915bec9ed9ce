//! The lifecycle of an order, and its rows in the table.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;
use serde_json::{Value, json};
use suite_tests::Suite;

fn command(name: &str, data: Value) -> Value {
    json!({"command": name, "data": data})
}

async fn deliver(suite: &Suite, id: &str) {
    let items = json!([{"productId": "coffee", "quantity": 2}]);
    let order = json!({"id": id, "customerId": "alice", "items": items, "total": 4500});
    suite.post("/order", &order).await.expect(201);
    for step in [
        command("ProcessPayment", json!({"amount": 4500})),
        command("ShipOrder", json!({"trackingNumber": "T-1"})),
        command("DeliverOrder", json!({})),
    ] {
        suite.post(&format!("/order/{id}/commands"), &step).await.expect(200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn order_can_be_placed_paid_shipped_and_delivered() {
    let suite = Suite::start().await;
    deliver(&suite, "1234").await;

    let state = suite.get("/order/1234").await.expect(200);
    assert_eq!(state.header("etag"), "\"4-2\"");
    assert_eq!(state.body["state"]["status"], "delivered");
    assert_eq!(suite.get("/order/1234?version=2").await.expect(200).body["state"]["status"], "paid");

    let again = suite.post("/order/1234/commands", &command("ProcessPayment", json!({"amount": 4500}))).await;
    assert_eq!(again.expect_problem(422, "refused").body["rejection"], "WrongStatus");

    let messages = suite.messages_of("order/1234", 4).await;
    let details: Vec<Value> = messages.iter().map(|message| serde_json::from_str(&message.detail).unwrap()).collect();
    let status: Vec<_> = details.iter().map(|detail| &detail["data"]["status"]).collect();
    assert_eq!(status, ["placed", "paid", "shipped", "delivered"]);
    let numbers: Vec<_> = details.iter().map(|detail| detail["metadata"]["messageSeq"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [1, 2, 3, 4]);
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_on_an_order_write_the_documented_rows() {
    let suite = Suite::start().await;
    deliver(&suite, "1234").await;
    let rows = suite
        .table()
        .query()
        .table_name(suite.stack.table_name())
        .key_condition_expression("pk = :pk")
        .expression_attribute_values(":pk", AttributeValue::S("AGGREGATE#order#1234".into()))
        .send()
        .await
        .unwrap()
        .items
        .unwrap();
    let rows: HashMap<_, _> = rows.into_iter().map(|row| (row["sk"].as_s().unwrap().clone(), row)).collect();
    // The reactor adds a position some time after.
    let mut sks: Vec<_> = rows.keys().map(String::as_str).filter(|sk| !sk.starts_with("POSITION#")).collect();
    sks.sort_unstable();
    assert_eq!(
        sks,
        [
            "#METADATA",
            "EVENT#000000000001",
            "EVENT#000000000002",
            "EVENT#000000000003",
            "EVENT#000000000004",
            "OUTBOX#000000000001#0",
            "OUTBOX#000000000002#0",
            "OUTBOX#000000000003#0",
            "OUTBOX#000000000004#0",
        ]
    );

    let text = |row: &HashMap<String, AttributeValue>, name: &str| row[name].as_s().unwrap().clone();
    let number = |row: &HashMap<String, AttributeValue>, name: &str| row[name].as_n().unwrap().parse::<i64>().unwrap();
    let json = |text: String| serde_json::from_str::<Value>(&text).unwrap();

    let metadata = &rows["#METADATA"];
    assert_eq!((number(metadata, "currentSeqNum"), number(metadata, "messageSeq")), (4, 4));
    assert_eq!((text(metadata, "aggregateType"), text(metadata, "aggregateId")), ("order".into(), "1234".into()));
    assert!(text(metadata, "createdAt") < text(metadata, "updatedAt"));

    let paid = &rows["EVENT#000000000002"];
    assert_eq!((number(paid, "seqNum"), number(paid, "eventVersion")), (2, 1));
    assert_eq!(text(paid, "eventType"), "PaymentProcessed");
    assert_eq!(json(text(paid, "data")), json!({"amount": 4500}));
    assert_eq!(text(paid, "gsi1pk"), "EVENT_TYPE#PaymentProcessed");
    assert_eq!(text(paid, "gsi1sk"), format!("EVENT#{}", text(paid, "eventId")));
    assert!(paid["meta"].as_m().unwrap().contains_key("correlationId"));
    assert!(!paid.contains_key("snapshotDue"));

    let row = &rows["OUTBOX#000000000002#0"];
    assert_eq!((number(row, "seqNum"), number(row, "messageSeq")), (2, 2));
    assert_eq!(text(row, "messageType"), "PaymentProcessed");
    assert_eq!(text(row, "occurredAt"), text(paid, "occurredAt"));
    let detail = json(text(row, "detail"));
    assert_eq!(detail["metadata"]["messageId"], text(row, "messageId"));
    assert_eq!(detail["metadata"]["eventId"], text(paid, "eventId"));
    assert_eq!(
        (&detail["metadata"]["aggregateType"], &detail["metadata"]["aggregateId"]),
        (&json!("order"), &json!("1234"))
    );
    assert_eq!(detail["data"]["status"], "paid");
    assert!(number(row, "ttl") > 1_700_000_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_all_orders_are_found_by_event_type() {
    let suite = Suite::start().await;
    for id in ["3", "1", "2"] {
        deliver(&suite, id).await;
    }
    let feed = suite.get("/events?type=OrderPlaced").await.expect(200);
    let found = feed.body["events"].as_array().unwrap();
    let ids: Vec<_> = found.iter().map(|event| &event["aggregateId"]).collect();
    assert_eq!(ids, ["3", "1", "2"]);
    assert!(found.iter().all(|event| event["eventType"] == "OrderPlaced" && event["seqNum"] == 1));

    let first = suite.get("/events?type=OrderPlaced&limit=2").await.expect(200);
    assert_eq!(first.body["events"].as_array().unwrap().len(), 2);
    let rest = suite.get(first.next().unwrap()).await.expect(200);
    assert_eq!(rest.body["events"][0]["aggregateId"], "2");
    assert_eq!(rest.header("link"), "");
}
