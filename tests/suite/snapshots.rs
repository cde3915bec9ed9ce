//! The snapshotter takes snapshots, and they change no response.

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use serde_json::json;
use suite_tests::Suite;

async fn snapshot_version(suite: &Suite) -> Option<u64> {
    let response = suite
        .table()
        .get_item()
        .table_name(suite.stack.table_name())
        .key("pk", AttributeValue::S("AGGREGATE#account#1".into()))
        .key("sk", AttributeValue::S("#SNAPSHOT".into()))
        .send()
        .await
        .unwrap();
    Some(response.item?["lastSeqNum"].as_n().unwrap().parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshot_is_taken_every_hundred_events() {
    let suite = Suite::start().await;
    suite.post("/account", &json!({"id": "1"})).await.expect(201);
    let penny = json!({"command": "RecordTransaction", "data": {"desc": "", "amount": 1}});
    let pennies = serde_json::Value::from(vec![penny; 49]);
    suite.post("/account/1/commands", &pennies).await.expect(200);
    assert_eq!(snapshot_version(&suite).await, None);
    for _ in 0..2 {
        suite.post("/account/1/commands", &pennies).await.expect(200);
    }

    for attempt in 0.. {
        assert!(attempt < 1000, "no snapshot appears");
        if snapshot_version(&suite).await.is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    assert!(snapshot_version(&suite).await.is_some_and(|version| (100..=148).contains(&version)));

    for path in ["/account/1", "/account/1?rebuild=true"] {
        let state = suite.get(path).await.expect(200);
        assert_eq!((&state.body["version"], &state.body["state"]["balance"]), (&json!(148), &json!(147)));
    }
    let earlier = suite.get("/account/1?version=60").await.expect(200);
    assert_eq!((earlier.header("etag"), &earlier.body["state"]["balance"]), ("\"60-1\"", &json!(59)));
}
