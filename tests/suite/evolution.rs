//! Events of earlier releases stay usable over HTTP, and the code blocks of `docs/evolving-events.md` equal the source.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;
use daybook_decider::{Json, Meta, RecordedEvent};
use daybook_table::{AggregateKey, EventItem, keys};
use serde_json::{Value, json};
use suite_tests::document::Document;
use suite_tests::{Suite, workspace};
use ulid::Ulid;

/// Puts the event stream of an earlier release into the table: events with these names, versions and data.
async fn leave(suite: &Suite, key: &AggregateKey, events: &[(&str, u32, Value)]) {
    let occurred_at = "2021-02-03T04:05:06.789Z".parse().unwrap();
    let mut rows: Vec<HashMap<_, _>> = Vec::new();
    for (seq_num, (name, version, data)) in (1..).zip(events) {
        let event = RecordedEvent {
            seq_num,
            event_id: Ulid::from_parts(1_612_325_106_789, seq_num.into()),
            event_type: (*name).to_owned(),
            event_version: *version,
            data: Json::of(data).unwrap(),
            meta: Meta::default(),
            occurred_at,
            message_seq: seq_num,
            message_epoch: 1,
            together: Vec::new(),
        };
        rows.push(serde_dynamo::to_item(EventItem::new(key, &event, 1, false)).unwrap());
    }
    let count = AttributeValue::N(events.len().to_string());
    let text = |text: &str| AttributeValue::S(text.to_owned());
    rows.push(HashMap::from(
        [
            ("pk", text(&keys::pk(key))),
            ("sk", text("#METADATA")),
            ("currentSeqNum", count.clone()),
            ("messageSeq", count),
            ("aggregateType", text(&key.aggregate_type)),
            ("aggregateId", text(&key.id)),
            ("createdAt", text("2021-02-03T04:05:06.789Z")),
            ("updatedAt", text("2021-02-03T04:05:06.789Z")),
        ]
        .map(|(name, value)| (name.to_owned(), value)),
    ));
    for row in rows {
        let put = suite.table().put_item().table_name(suite.stack.table_name()).set_item(Some(row));
        put.send().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn order_stored_by_the_first_release_can_still_be_delivered() {
    let suite = Suite::start().await;
    let placed = json!({"id": "1", "customerId": "alice", "productId": "coffee", "quantity": 2, "total": 4500});
    let stream = [
        ("OrderPlaced", 1, placed.clone()),
        ("PaymentReminded", 1, json!({"times": 1})),
        ("OrderDispatched", 1, json!({"amount": 4500, "trackingNumber": "T-0"})),
    ];
    leave(&suite, &AggregateKey::new("order", "1"), &stream).await;

    let order = suite.get("/order/1").await.expect(200);
    let state = json!({
        "id": "1", "customerId": "alice", "items": [{"productId": "coffee", "quantity": 2}], "total": 4500,
        "status": "shipped", "trackingNumber": "T-0",
    });
    assert_eq!((order.header("etag"), &order.body["state"]), ("\"3-2\"", &state));
    for (version, status) in [(1, "placed"), (2, "placed"), (3, "shipped")] {
        let earlier = suite.get(&format!("/order/1?version={version}")).await.expect(200);
        assert_eq!(earlier.body["state"]["status"], status);
    }

    let delivered = suite.post("/order/1/commands", &json!({"command": "DeliverOrder"})).await.expect(200);
    assert_eq!((&delivered.body["version"], &delivered.body["state"]["status"]), (&json!(4), &json!("delivered")));
    let published = suite.messages_of("order/1", 1).await;
    assert_eq!(published[0].detail_type, "OrderDelivered");

    // The response contains the events as they were stored, as the OpenAPI document describes.
    let events = suite.get("/order/1/events").await.expect(200);
    let forms: Vec<_> = events.body["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| (event["eventType"].as_str().unwrap(), event["eventVersion"].as_u64().unwrap()))
        .collect();
    assert_eq!(forms, [("OrderPlaced", 1), ("PaymentReminded", 1), ("OrderDispatched", 1), ("OrderDelivered", 1)]);
    assert_eq!(events.body["events"][0]["data"], placed);
    let documented = &Document::get().json()["components"]["parameters"]["FeedType"]["schema"]["enum"];
    for name in ["OrderPlaced", "OrderDispatched", "PaymentReminded"] {
        assert!(documented.as_array().unwrap().contains(&name.into()), "{name} is none of {documented}");
        let feed = suite.get(&format!("/events?type={name}")).await.expect(200);
        assert_eq!(feed.body["events"][0]["aggregateId"], "1", "{name}");
    }
    let orders = suite.get("/order").await.expect(200);
    assert_eq!(orders.body["aggregates"], json!([{"id": "1", "createdAt": "2021-02-03T04:05:06.789Z"}]));
}

/// The code blocks of a page in a language.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let begin = format!("```{language}\n");
    page.split(&begin).skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

#[test]
fn code_blocks_of_the_page_equal_the_source() {
    let read = |path: &str| std::fs::read_to_string(workspace().join(path)).unwrap();
    let page = read("docs/evolving-events.md");
    let plain = |text: &str| text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n");
    let order = plain(&read("app/aggregates/src/order.rs"));
    let earlier = plain(&read("app/aggregates/src/order/earlier.rs"));
    let [declared, upcast, ..] = blocks(&page, "rust")[..] else {
        panic!("the page needs two Rust blocks: the declarations and the upcast")
    };
    // The page leaves out the source between these blocks.
    for part in plain(declared).split("// …") {
        assert!(order.contains(part.trim()), "{part}");
    }
    assert!(earlier.contains(&plain(upcast)), "{upcast}");

    let shown: Value = serde_json::from_str(blocks(&page, "json")[0]).unwrap();
    let golden: Vec<Value> = serde_json::from_str(&read("app/aggregates/golden/order.json")).unwrap();
    let pinned =
        golden.iter().find(|golden| (&golden["name"], &golden["version"]) == (&shown["name"], &shown["version"]));
    assert_eq!(pinned.unwrap()["shape"], shown["shape"]);
    assert_eq!(shown["reads"][0]["data"]["items"], shown["data"]["lines"]);
}
