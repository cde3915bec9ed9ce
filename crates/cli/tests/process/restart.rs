//! What survives a restart of `daybook dev --data FILE`.

use std::path::Path;

use serde_json::{Value, json};

use crate::daybook::{Daybook, template};

fn message_ids(bus: &[Value]) -> Vec<&str> {
    bus.iter().map(|entry| entry["detail"]["metadata"]["messageId"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn restart_sends_only_what_was_not_sent() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("daybook.db");
    let daybook = Daybook::with_data(&data);
    for id in 0..5 {
        daybook.create_todo(&id.to_string(), "first").await;
    }
    let first = daybook.list("/_dev/bus", 5).await;
    daybook.set_faults(&json!({"putEvents": [{"http": 500, "forever": true}]})).await;
    daybook.create_todo("5", "second").await;
    assert_eq!(daybook.end("INT").0.code(), Some(0));

    let daybook = Daybook::with_data(&data);
    let sent = daybook.list("/_dev/bus", 6).await;
    assert_eq!(sent[..5], first);
    assert_eq!(sent[5]["detail"]["data"]["message"], "second");
    daybook.wait_until_printed(1).await;
    assert_eq!(daybook.printed(), 1);
    assert_eq!(daybook.end("INT").0.code(), Some(0));

    // Nothing is left to send: a later message arrives next.
    let daybook = Daybook::with_data(&data);
    daybook.create_todo("6", "third").await;
    let sent = daybook.list("/_dev/bus", 7).await;
    let ids = message_ids(&sent);
    assert_eq!(ids.iter().collect::<std::collections::BTreeSet<_>>().len(), 7, "{ids:?}");
    daybook.wait_until_printed(1).await;
    assert_eq!(daybook.printed(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letter_queue_survives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("daybook.db");
    let daybook = Daybook::with_data(&data);
    daybook.set_faults(&json!({"entries": [{"containing": "TodoCreated", "code": "MalformedDetail"}]})).await;
    daybook.create_todo("1", "").await;
    daybook.create_todo("2", "").await;
    let before = daybook.list("/_dev/dlq", 2).await;
    assert_eq!(daybook.end("INT").0.code(), Some(0));

    let daybook = Daybook::with_data(&data);
    assert_eq!(daybook.list("/_dev/dlq", 2).await, before);
    let redriven = daybook.operate(&["dlq", "redrive", "--yes", "--aggregate", "todo/1"]);
    assert!(redriven.contains("1 messages sent and deleted from the queue"), "{redriven}");
    assert_eq!(daybook.end("INT").0.code(), Some(0));

    let daybook = Daybook::with_data(&data);
    let listed = daybook.operate(&["dlq", "list"]);
    assert!(listed.contains(" todo/2 ") && listed.contains("1 of 1 dead-letter messages listed"), "{listed}");
    daybook.set_faults(&json!({"entries": [{"containing": "TodoCreated", "code": "MalformedDetail"}]})).await;
    daybook.create_todo("3", "").await;
    let all = daybook.list("/_dev/dlq", 3).await;
    let ids: std::collections::BTreeSet<_> = all.iter().map(|message| message["messageId"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), 3, "{all:?}");
}

/// A template whose relay gives up after one invocation of two seconds.
fn impatient_template(folder: &Path) -> std::path::PathBuf {
    let text = std::fs::read_to_string(template()).unwrap();
    let changed = text
        .replace("MaximumRetryAttempts: -1", "MaximumRetryAttempts: 0")
        .replace("BisectBatchOnFunctionError: true", "BisectBatchOnFunctionError: false")
        .replace("    Timeout: 30\n", "    Timeout: 2\n");
    assert_ne!(changed, text);
    let path = folder.join("template.yaml");
    std::fs::write(&path, changed).unwrap();
    path
}

#[tokio::test(flavor = "multi_thread")]
async fn discarded_records_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let (data, template) = (folder.path().join("daybook.db"), impatient_template(folder.path()));
    let daybook = Daybook::start(Some(&data), &template);
    daybook.set_faults(&json!({"putEvents": [{"http": 500, "forever": true}]})).await;
    daybook.create_todo("1", "").await;
    let before = daybook.list("/_dev/discarded", 1).await;
    assert_eq!(daybook.end("INT").0.code(), Some(0));

    let daybook = Daybook::start(Some(&data), &template);
    assert_eq!(daybook.list("/_dev/discarded", 1).await, before);
    // A discarded record is settled: it is not sent.
    daybook.create_todo("2", "").await;
    let sent = daybook.list("/_dev/bus", 1).await;
    assert_eq!(sent[0]["resources"], json!(["todo/2"]));

    // An operator sends it, and deletes the object, also for the next start.
    let listed = daybook.operate(&["discarded", "list"]);
    assert!(listed.contains(" stream-relay RetryAttemptsExhausted: 1 records of "), "{listed}");
    assert!(listed.contains("messages: todo/1 1\n"), "{listed}");
    let redriven = daybook.operate(&["discarded", "redrive", "--yes"]);
    assert!(redriven.contains("1 messages sent, 1 objects deleted;"), "{redriven}");
    assert_eq!(daybook.list("/_dev/bus", 2).await[1]["resources"], json!(["todo/1"]));
    assert_eq!(daybook.end("INT").0.code(), Some(0));
    let daybook = Daybook::start(Some(&data), &template);
    assert!(daybook.operate(&["discarded", "list"]).starts_with("0 objects with 0 messages"));
    assert_eq!(daybook.list("/_dev/discarded", 1).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn moved_clock_survives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("daybook.db");
    let daybook = Daybook::with_data(&data);
    daybook.create_todo("1", "first").await;
    daybook.list("/_dev/bus", 1).await;
    daybook.move_clock("14d").await;
    daybook.move_clock("2h").await;
    daybook.post("/todo/1", &json!({"title": "second", "message": ""})).await;
    daybook.kill();

    let daybook = Daybook::with_data(&data);
    assert_eq!(daybook.get("/_dev/clock").await["aheadBy"], "14d 2h");
    // What was sent just before the kill may be sent again.
    daybook.wait_for_messages(2).await;
    daybook.post("/todo/1", &json!({"title": "third", "message": ""})).await;
    let accepted = |message: &Value| message["entry"]["accepted_at"].as_i64().unwrap();
    daybook.wait_for_messages(3).await;
    let messages = daybook.post("/_dev/console/messages", &json!({})).await["messages"].as_array().unwrap().clone();
    let times = messages.iter().map(accepted).collect::<Vec<_>>();
    assert!(times.is_sorted() && times[1] - times[0] >= (14 * 24 + 2) * 60 * 60 * 1_000, "{times:?}");
    let events = daybook.get("/todo/1/events").await["events"].as_array().unwrap().clone();
    let times = events.iter().map(|event| event["occurredAt"].as_str().unwrap()).collect::<Vec<_>>();
    assert!(times.is_sorted() && times[1][..10] > times[0][..10], "{times:?}");
}
