//! The log lines of a batch.

use serde_json::{Value, json};

use crate::support::{insert, insert_detail, setup, take_log};

/// The level and the message of a log line.
fn level_and_message(line: &Value) -> (&str, &str) {
    (line["level"].as_str().unwrap(), line["message"].as_str().unwrap())
}

#[tokio::test]
async fn a_batch_is_one_line_of_the_log() {
    let setup = setup(json!({})).await;
    take_log();
    let mut other = insert(4, "d", 1);
    other["eventName"] = json!("REMOVE");
    let records = [insert(1, "a", 1), insert(2, "b", 1), insert(3, "a", 1), other];
    assert_eq!(setup.checkpoint(&records).await, None);
    assert_eq!(setup.checkpoint(&[]).await, None);

    let fields = ["records", "relevant", "sent", "retried", "dead_lettered", "unsettled", "calls"];
    let lines = take_log();
    assert_eq!(lines.iter().map(level_and_message).collect::<Vec<_>>(), [("INFO", "relayed"); 2]);
    assert_eq!(fields.map(|name| lines[0][name].as_u64()), [4, 3, 2, 0, 0, 0, 1].map(Some));
    assert_eq!(fields.map(|name| lines[1][name].as_u64()), [Some(0); 7]);
}

#[tokio::test]
async fn log_contains_messages_that_were_sent_more_than_once() {
    let failing = json!([{"index": 0, "code": "InternalFailure"}, {"index": 2, "code": "ThrottlingException"}]);
    let again = json!([{"index": 1, "code": "InternalFailure"}]);
    let setup = setup(json!({"putEvents": [{ "failEntries": failing }, { "failEntries": again }]})).await;
    take_log();
    let records = [insert(1, "a", 1), insert(2, "b", 1), insert(3, "c", 1)];
    assert_eq!(setup.checkpoint(&records).await, None);

    let lines = take_log();
    assert_eq!(
        lines.iter().map(level_and_message).collect::<Vec<_>>(),
        [("INFO", "relayed"), ("INFO", "sent more than once")]
    );
    assert_eq!((&lines[0]["sent"], &lines[0]["retried"], &lines[0]["calls"]), (&json!(3), &json!(3), &json!(3)));
    assert_eq!((&lines[1]["retried"], &lines[1]["ids"]), (&json!(3), &json!("a-1 c-1")), "each is named once");
}

#[tokio::test]
async fn log_contains_dead_lettered_messages_and_their_errors() {
    let setup = setup(json!({"entries": [{"containing": "b-1", "code": "MalformedDetail"}]})).await;
    take_log();
    assert_eq!(setup.checkpoint(&[insert(1, "a", 1), insert(2, "b", 1), json!("odd")]).await, None);

    let (mut warnings, others): (Vec<_>, Vec<_>) = take_log().into_iter().partition(|line| line["level"] == "WARN");
    warnings.sort_unstable_by_key(|line| line["id"].to_string());
    assert!(warnings.iter().all(|line| line["message"] == "sent to the dead-letter queue"), "{warnings:#?}");
    let named: Vec<_> = warnings.iter().map(|line| (line["id"].as_str(), line["code"].as_str())).collect();
    assert_eq!(named, [(Some("?"), Some("UnreadableRecord")), (Some("b-1"), Some("MalformedDetail"))]);
    assert!(warnings.iter().all(|line| !line["text"].as_str().unwrap().is_empty()));
    assert_eq!(others.iter().map(level_and_message).collect::<Vec<_>>(), [("INFO", "relayed")]);
    assert_eq!((&others[0]["sent"], &others[0]["dead_lettered"]), (&json!(1), &json!(2)));
}

#[tokio::test]
async fn log_contains_unsettled_messages_and_the_last_error() {
    let setup = setup(json!({"sendMessage": [{"http": 503, "forever": true}]})).await;
    take_log();
    let records = [insert(1, "b", 1), insert_detail(2, "a", 1, "malformed"), insert(3, "a", 2)];
    assert_eq!(setup.checkpoint(&records).await.as_deref(), Some("2"));

    let (warnings, lines): (Vec<_>, Vec<_>) = take_log().into_iter().partition(|line| line["level"] == "WARN");
    assert_eq!(warnings.len(), 3, "one for each attempt: {warnings:?}");
    let expected = [
        ("ERROR", "the dead-letter queue rejected a message"),
        ("INFO", "relayed"),
        ("ERROR", "unsettled, will be retried"),
    ];
    assert_eq!(lines.iter().map(level_and_message).collect::<Vec<_>>(), expected);
    assert_eq!((&lines[0]["id"], &lines[0]["code"]), (&json!("a-1"), &json!("MalformedDetail")));
    assert_eq!(
        (&lines[1]["sent"], &lines[1]["dead_lettered"], &lines[1]["unsettled"]),
        (&json!(1), &json!(0), &json!(2))
    );
    assert_eq!((&lines[2]["unsettled"], &lines[2]["ids"]), (&json!(2), &json!("a-1 a-2")));
    assert_eq!(lines[2]["code"], "NotDeadLettered");
}

#[tokio::test]
async fn deployment_error_is_logged_once_with_a_hundred_unsettled_messages() {
    let setup = setup(json!({"putEvents": [{"code": "AccessDeniedException", "forever": true}]})).await;
    take_log();
    let records: Vec<_> = (1..=120).map(|n| insert(n, &n.to_string(), 1)).collect();
    assert_eq!(setup.checkpoint(&records).await.as_deref(), Some("1"));

    let lines = take_log();
    let expected = [
        ("ERROR", "the bus rejects this deployment, stopped sending"),
        ("INFO", "relayed"),
        ("ERROR", "unsettled, will be retried"),
    ];
    assert_eq!(lines.iter().map(level_and_message).collect::<Vec<_>>(), expected);
    assert_eq!((&lines[1]["sent"], &lines[1]["unsettled"]), (&json!(0), &json!(120)));
    assert_eq!(lines[2]["ids"].as_str().unwrap().split(' ').count(), 100);
    assert_eq!(
        (&lines[0]["code"], &lines[2]["code"]),
        (&json!("AccessDeniedException"), &json!("AccessDeniedException"))
    );
}
