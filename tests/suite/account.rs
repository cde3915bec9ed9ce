//! An account, from its opening to a rejected transaction.

use serde_json::{Value, json};
use suite_tests::Suite;

fn transaction(desc: &str, amount: i64) -> Value {
    json!({"command": "RecordTransaction", "data": {"desc": desc, "amount": amount}})
}

#[tokio::test(flavor = "multi_thread")]
async fn account_commands_update_the_balance_and_publish_the_overdraft_once() {
    let suite = Suite::start().await;

    let opened = suite.post("/account", &json!({"id": "476118"})).await.expect(201);
    assert_eq!((opened.header("location"), opened.header("etag")), ("/account/476118", "\"1-1\""));
    suite.post("/account/476118", &json!({"ownerFirst": "John", "ownerLast": "Brown"})).await.expect(200);

    let both = json!([transaction("A", 200), transaction("B", -300)]);
    let batch = suite.post("/account/476118/commands", &both).await.expect(200);
    assert_eq!(batch.body["events"].as_array().unwrap().len(), 2);
    assert_eq!(batch.body["messages"][0]["messageType"], "accountOverdrawn");
    assert_eq!(batch.body["messages"][0]["data"], json!({"accountId": "476118"}));

    let after_c = suite.post("/account/476118/commands", &transaction("C", 50)).await.expect(200);
    let seen = after_c.header("etag").to_owned();
    suite.post_if_match("/account/476118/commands", &transaction("D", 25), Some(&seen)).await.expect(200);

    let state = suite.get("/account/476118").await.expect(200);
    assert_eq!(
        state.body,
        json!({"id": "476118", "version": 6, "state": {"id": "476118", "ownerFirst": "John", "ownerLast": "Brown",
               "balance": -25, "minimumBalance": -1000}})
    );
    assert_eq!(suite.get("/account/476118?rebuild=true").await.expect(200).body, state.body);

    let finally = suite.post("/account/476118/commands?rebuild=true", &transaction("E", 25)).await.expect(200);
    assert_eq!(finally.body["state"]["balance"], 0);

    // A second message about the overdraft would arrive before the last message.
    suite.post("/account/476118/commands", &transaction("F", -5000)).await.expect_problem(422, "refused");
    let messages = suite.messages_of("account/476118", 2).await;
    let types: Vec<_> = messages.iter().map(|message| message.detail_type.as_str()).collect();
    assert_eq!(types, ["accountOverdrawn", "transactionFailed"]);
    let detail: Value = serde_json::from_str(&messages[0].detail).unwrap();
    assert_eq!(detail["data"], json!({"accountId": "476118"}));
    assert_eq!(detail["metadata"]["seqNum"], 4);
    assert_eq!(detail["metadata"]["messageSeq"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn transaction_beyond_the_overdraft_is_rejected_and_the_rejection_is_published() {
    let suite = Suite::start().await;
    suite.post("/account", &json!({"id": "1"})).await.expect(201);

    let rejected = suite.post("/account/1/commands", &transaction("too much", -1001)).await;
    let rejected = rejected.expect_problem(422, "refused");
    assert_eq!(rejected.body["rejection"], "InsufficientFunds");
    assert_eq!(rejected.header("etag"), "\"2-1\"");

    let state = suite.get("/account/1").await.expect(200);
    assert_eq!((&state.body["version"], &state.body["state"]["balance"]), (&json!(2), &json!(0)));

    let messages = suite.messages_of("account/1", 1).await;
    let detail: Value = serde_json::from_str(&messages[0].detail).unwrap();
    assert_eq!(messages[0].detail_type, "transactionFailed");
    assert_eq!(detail["data"], json!({"accountId": "1", "desc": "too much", "amount": -1001}));
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_batch_appends_only_the_events_of_the_rejection() {
    let suite = Suite::start().await;
    suite.post("/account", &json!({"id": "1"})).await.expect(201);

    let batch = json!([transaction("fine", 10), transaction("too much", -5000), transaction("fine", 10)]);
    suite.post("/account/1/commands", &batch).await.expect_problem(422, "refused");

    let events = suite.get("/account/1/events").await.expect(200);
    let types: Vec<_> = events.body["events"].as_array().unwrap().iter().map(|event| &event["eventType"]).collect();
    assert_eq!(types, ["AccountOpened", "TransactionFailed"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_with_a_creation_creates_and_a_rejected_one_appends_nothing() {
    let suite = Suite::start().await;
    let open = json!({"command": "OpenAccount"});

    let created = suite.post("/account/1/commands", &json!([open, transaction("A", 5)])).await.expect(201);
    assert_eq!((created.header("etag"), &created.body["state"]["balance"]), ("\"2-1\"", &json!(5)));

    suite.post("/account/2/commands", &json!([open, transaction("A", -5000)])).await.expect_problem(422, "refused");
    suite.get("/account/2").await.expect_problem(404, "not-found");
    suite.get("/account/2/events").await.expect_problem(404, "not-found");
}
