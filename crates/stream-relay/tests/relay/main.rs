//! The relay against a bus and a queue over HTTP, with all their failures.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bus_check;
mod bus_failures;
mod deadlines;
mod logs;
mod repeated_deliveries;
mod support;

use std::collections::HashMap;
use std::time::Duration;

use daybook_stream_relay::{RelayError, RetryPolicy, Waits};
use daybook_test_support::stream_record::STREAM_ARN;
use serde_json::{Value, json};
use support::{detail, insert, insert_detail, message_id, moved, setup, setup_with_retries};

#[tokio::test]
async fn row_is_sent_to_the_bus_unchanged() {
    let setup = setup(json!({})).await;
    assert_eq!(setup.checkpoint(&[insert(1, "a", 1)]).await, None);
    let entry = setup.bus.delivered().remove(0);
    assert_eq!(entry.detail, detail("a", 1, ""));
    assert_eq!((entry.source.as_str(), entry.detail_type.as_str()), ("daybook", "TodoUpdated"));
    assert_eq!((entry.event_bus_name.as_str(), entry.resources), ("main", vec!["todo/a".to_owned()]));
    assert_eq!((entry.time.as_deref(), entry.trace_header), (Some("2026-11-21T01:02:03.456Z"), None));
}

/// A trace header in the form in which Lambda passes it to a function.
const TRACE: &str = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1";

fn traced(sequence_number: u64, id: &str, trace_header: Value) -> Value {
    let mut record = insert(sequence_number, id, 1);
    record["dynamodb"]["NewImage"]["traceHeader"] = trace_header;
    record
}

#[tokio::test]
async fn trace_header_of_a_row_is_sent_with_its_message() {
    let setup = setup(json!({})).await;
    let records = [traced(1, "a", json!({"S": TRACE})), insert(2, "b", 1)];
    assert_eq!(setup.checkpoint(&records).await, None);
    let headers: Vec<_> = setup.bus.delivered().into_iter().map(|entry| entry.trace_header).collect();
    assert_eq!(headers, [Some(TRACE.to_owned()), None]);
}

#[tokio::test]
async fn message_with_an_invalid_trace_header_is_sent_without_it() {
    let odd = [
        json!({"S": format!("{TRACE};Lineage={}", "x".repeat(500))}),
        json!({"S": "Root=1"}),
        json!({"S": ""}),
        json!({"N": "1"}),
        json!({"NULL": true}),
        json!({"M": {"Root": {"S": TRACE}}}),
        json!({"B": "not base64"}),
        json!({"?": TRACE}),
        json!({}),
        json!([TRACE]),
        json!(TRACE),
        json!(null),
    ];
    let setup = setup(json!({})).await;
    let records: Vec<_> = (1..).zip(&odd).map(|(n, header)| traced(n, &n.to_string(), header.clone())).collect();
    assert_eq!(setup.checkpoint(&records).await, None);
    let delivered = setup.bus.delivered();
    assert_eq!(delivered.len(), odd.len());
    assert!(delivered.iter().all(|entry| entry.trace_header.is_none()), "{delivered:?}");
    assert_eq!(setup.dead_letters(), [Value::Null; 0]);
}

#[tokio::test]
async fn a_trace_header_does_not_count_as_size() {
    // The largest detail of an entry. The time counts as 14 bytes; source, type and resource count too.
    let largest = 1024 * 1024 - 1 - (14 + "daybook".len() + "TodoUpdated".len() + "todo/a".len());
    let empty = detail("a", 1, "").len();
    let mut record = insert_detail(1, "a", 1, &detail("a", 1, &"x".repeat(largest - empty)));
    record["dynamodb"]["NewImage"]["traceHeader"] = json!({"S": TRACE});
    let setup = setup(json!({})).await;
    assert_eq!(setup.checkpoint(&[record]).await, None);
    assert_eq!(setup.bus.delivered()[0].trace_header.as_deref(), Some(TRACE));
}

#[tokio::test]
async fn n_distinct_aggregates_take_n_tenths_calls() {
    for count in [0, 1, 10, 25, 100, 101] {
        let setup = setup(json!({})).await;
        let records: Vec<_> = (0..count).map(|n| insert(n, &n.to_string(), 1)).collect();
        assert_eq!(setup.checkpoint(&records).await, None);
        assert_eq!(setup.calls().len() as u64, count.div_ceil(10), "{count}");
    }
}

#[tokio::test]
async fn ten_thousand_messages_of_a_thousand_aggregates_take_a_thousand_calls() {
    let setup = setup(json!({})).await;
    let records: Vec<_> = (0..10_000).map(|n| insert(n, &(n % 1_000).to_string(), n / 1_000 + 1)).collect();
    assert_eq!(setup.checkpoint(&records).await, None);
    assert_eq!(setup.calls(), [10; 1_000]);
    assert_in_order(&setup.delivered(), 10_000);
}

#[tokio::test]
async fn order_holds_whatever_the_order_of_the_batch() {
    let setup =
        setup(json!({"putEvents": [{"http": 500}, {"failEntries": [{"index": 0, "code": "InternalFailure"}]}]})).await;
    let mut records: Vec<_> = (0..60).map(|n| insert(n, &(n % 3).to_string(), n / 3 + 1)).collect();
    records.reverse();
    // Each record is repeated, as after a lost response.
    let again: Vec<_> = (0..60).map(|n| insert(100 + n, &(n % 3).to_string(), n / 3 + 1)).collect();
    records.extend(again);
    assert_eq!(setup.checkpoint(&records).await, None);
    assert_in_order(&setup.delivered(), 60);
}

/// Asserts that each message arrived once, and those of an aggregate in order.
fn assert_in_order(delivered: &[String], count: usize) {
    assert_eq!(delivered.len(), count);
    let mut last: HashMap<&str, u64> = HashMap::new();
    for id in delivered {
        let (aggregate, seq) = id.split_once('-').unwrap();
        let before = last.insert(aggregate, seq.parse().unwrap()).unwrap_or_default();
        assert_eq!(seq.parse::<u64>().unwrap(), before + 1, "{id} after {before}");
    }
}

#[tokio::test]
async fn only_failed_entries_are_sent_again() {
    let failing = json!([{"index": 2, "code": "InternalFailure"}, {"index": 7, "code": "ThrottlingException"}]);
    let setup = setup(json!({"putEvents": [{"failEntries": failing}]})).await;
    let records: Vec<_> = (0..10).map(|n| insert(n, &n.to_string(), 1)).collect();
    assert_eq!(setup.checkpoint(&records).await, None);
    assert_eq!(setup.calls(), [10, 2]);
    assert_eq!(setup.delivered()[8..], ["2-1", "7-1"]);
}

#[tokio::test]
async fn transient_failures_are_retried() {
    for fault in [
        json!({"http": 500}),
        json!({"http": 503, "code": "ServiceUnavailable"}),
        json!({"code": "ThrottlingException"}),
        json!({"http": 429}),
    ] {
        let setup = setup(json!({"putEvents": [fault, fault, fault]})).await;
        assert_eq!(setup.checkpoint(&[insert(1, "a", 1), insert(2, "b", 1)]).await, None);
        assert_eq!((setup.calls(), setup.delivered().len()), (vec![2; 4], 2), "{fault}");
        assert!(setup.dead_letters().is_empty());
    }
}

#[tokio::test]
async fn message_whose_response_is_lost_is_sent_again_unchanged() {
    for fault in [json!({"acceptThenDrop": true}), json!({"acceptThenDrop": true, "http": 502})] {
        let setup = setup(json!({"putEvents": [fault]})).await;
        assert_eq!(setup.checkpoint(&[insert(1, "a", 1)]).await, None);
        let delivered = setup.bus.delivered();
        assert_eq!(delivered.len(), 2, "{fault}");
        assert_eq!(delivered[0].detail, delivered[1].detail);
        assert_eq!(message_id(&delivered[0].detail), "a-1");
    }
}

#[tokio::test]
async fn an_unreadable_record_is_dead_lettered_and_the_others_are_sent() {
    let setup = setup(json!({})).await;
    let mut poison = insert(2, "a", 1);
    poison["dynamodb"]["NewImage"]["messageSeq"] = json!({"S": "one"});
    let records = [insert(1, "b", 1), poison.clone(), insert(3, "a", 2), json!("odd"), json!(null)];
    assert_eq!(setup.checkpoint(&records).await, None);

    let mut delivered = setup.delivered();
    delivered.sort_unstable();
    assert_eq!(delivered, ["a-2", "b-1"]);
    let mut records: Vec<_> =
        setup.dead_letters().into_iter().map(|dead_letter| dead_letter["record"].clone()).collect();
    records.sort_unstable_by_key(Value::to_string);
    assert_eq!(records, [json!("odd"), json!(null), poison]);
}

#[tokio::test]
async fn unsendable_message_is_dead_lettered_whole_and_its_successors_are_sent() {
    let setup = setup(json!({})).await;
    let mut long_type = insert(3, "a", 3);
    long_type["dynamodb"]["NewImage"]["messageType"]["S"] = json!("x".repeat(129));
    let oversized = insert_detail(4, "b", 1, &detail("b", 1, &"x".repeat(1024 * 1024)));
    let records = [
        insert(1, "a", 1),
        insert_detail(2, "a", 2, "{\"malformed\""),
        long_type,
        insert(5, "a", 4),
        insert(6, "b", 2),
    ];
    assert_eq!(setup.checkpoint(&records).await, None);
    let mut delivered = setup.delivered();
    delivered.sort_unstable();
    assert_eq!(delivered, ["a-1", "a-4", "b-2"]);

    let dead_letters = setup.dead_letters();
    assert_eq!(dead_letters.len(), 2);
    assert_eq!(dead_letters[0]["error"]["code"], "MalformedDetail");
    assert_eq!((&dead_letters[0]["attempts"], &dead_letters[1]["attempts"]), (&json!(1), &json!(0)));
    assert_eq!(dead_letters[0]["message"]["detail"], "{\"malformed\"");
    assert_eq!(dead_letters[0]["message"]["messageId"], "a-2");
    let stream = json!({"eventSourceARN": STREAM_ARN, "eventID": "event-2", "sequenceNumber": "2"});
    assert_eq!(dead_letters[0]["stream"], stream);
    assert_eq!(dead_letters[1]["error"]["code"], "InvalidArgument");

    // A message that is too large for a request is also too large for the queue, so it stays unsettled. The table
    // cannot store such a row.
    assert_eq!(setup.checkpoint(&[oversized, insert(7, "b", 2), insert(8, "c", 1)]).await.as_deref(), Some("4"));
    assert_eq!(setup.delivered().last().map(String::as_str), Some("c-1"));
}

#[tokio::test]
async fn an_unknown_code_is_retried_a_few_times_and_then_dead_lettered() {
    let setup = setup(json!({"entries": [{"containing": "a-1", "code": "SomethingNew"}]})).await;
    assert_eq!(setup.checkpoint(&[insert(1, "a", 1), insert(2, "a", 2)]).await, None);
    assert_eq!(setup.calls().len(), 6);
    assert_eq!(setup.delivered(), ["a-2"]);
    assert_eq!(
        (&setup.dead_letters()[0]["attempts"], &setup.dead_letters()[0]["error"]["code"]),
        (&json!(5), &json!("SomethingNew"))
    );
}

#[tokio::test]
async fn a_message_that_was_throttled_before_is_retried_at_its_first_unknown_code() {
    let throttled = json!({"code": "ThrottlingException"});
    let responses = [vec![throttled; 6], vec![json!({"failEntries": [{"index": 0, "code": "SomethingNew"}]})]].concat();
    let setup = setup(json!({ "putEvents": responses })).await;
    assert_eq!(setup.checkpoint(&[insert(1, "a", 1)]).await, None);
    assert_eq!((setup.calls().len(), setup.delivered(), setup.dead_letters().len()), (8, vec!["a-1".to_owned()], 0));
}

#[tokio::test]
async fn rejected_request_dead_letters_only_the_unsendable_message() {
    let setup =
        setup(json!({"putEvents": [{"code": "ValidationException"}, {}, {"code": "ValidationException"}]})).await;
    let records: Vec<_> = (1..=10).map(|n| insert(n, &n.to_string(), 1)).collect();
    assert_eq!(setup.checkpoint(&records).await, None);
    assert_eq!(setup.calls(), [vec![10], vec![1; 10]].concat());
    assert_eq!((setup.delivered().len(), setup.dead_letters().len()), (9, 1));
}

#[tokio::test]
async fn record_that_cannot_be_dead_lettered_is_the_checkpoint_and_the_others_are_sent() {
    let setup = setup(json!({"sendMessage": [{"http": 503, "forever": true}]})).await;
    let records = [
        insert(10, "a", 1),
        insert_detail(9, "a", 2, "malformed"),
        insert(8, "a", 3),
        insert(7, "b", 1),
        insert(11, "b", 2),
    ];
    assert_eq!(setup.checkpoint(&records).await.as_deref(), Some("8"));
    assert_eq!((setup.delivered().len(), setup.dead_letters().len()), (3, 0));
}

#[tokio::test]
async fn no_message_overtakes_an_unreadable_record_that_the_queue_rejects() {
    let setup = setup(json!({"sendMessage": [{"http": 503, "forever": true}]})).await;
    let mut poison = insert(2, "a", 2);
    poison["dynamodb"]["NewImage"]["messageSeq"] = json!({"S": "two"});
    let records = [insert(1, "a", 1), poison, insert(3, "a", 3), insert(4, "b", 1)];
    assert_eq!(setup.checkpoint(&records).await.as_deref(), Some("1"));
    assert_eq!(setup.delivered(), ["b-1"]);
}

#[tokio::test]
async fn dead_letter_queue_is_retried_after_a_failure() {
    let setup = setup(json!({"sendMessage": [{"http": 503}]})).await;
    assert_eq!(setup.checkpoint(&[insert_detail(1, "a", 1, "malformed")]).await, None);
    assert_eq!(setup.dead_letters().len(), 1);
}

#[tokio::test]
async fn deployment_error_dead_letters_nothing_and_the_whole_batch_is_retried() {
    for fault in [
        json!({"putEvents": [{"code": "AccessDeniedException", "forever": true}]}),
        json!({"putEvents": [{"http": 403, "forever": true}]}),
        json!({"putEvents": [{"code": "ResourceNotFoundException", "forever": true}]}),
        json!({"putEvents": [{"code": "ExpiredTokenException", "forever": true}]}),
        json!({"putEvents": [{"code": "SomethingNew", "forever": true}]}),
        json!({"entries": [{"containing": "", "code": "NotAuthorizedForDetailTypeException"}]}),
    ] {
        let setup = setup(fault.clone()).await;
        let records: Vec<_> = (1..=200).map(|n| insert(n, &n.to_string(), 1)).collect();
        assert_eq!(setup.checkpoint(&records).await.as_deref(), Some("1"), "{fault}");
        assert_eq!((setup.delivered().len(), setup.dead_letters().len()), (0, 0));
        // Only the requests that were in flight at the first error.
        assert!(setup.calls().len() <= 8, "{}", setup.calls().len());
    }
}

#[tokio::test]
async fn unsettled_messages_are_reported_at_the_deadline() {
    let throttled = json!([{"containing": "c-1", "code": "ThrottlingException"}]);
    let setup = setup(json!({ "entries": throttled })).await;
    // 9 is before 10 as a number, and after it as text.
    let records = [insert(11, "a", 1), insert(10, "c", 1), insert(9, "c", 2), insert(8, "b", 1)];
    let response = setup.relay_within(Duration::from_secs(2), &records).await.unwrap();
    assert_eq!(serde_json::to_string(&response).unwrap(), r#"{"batchItemFailures":[{"itemIdentifier":"9"}]}"#);
    assert_eq!(setup.delivered(), ["a-1", "b-1"]);
}

#[tokio::test]
async fn a_call_that_hangs_ends_with_the_deadline() {
    let setup = setup(json!({"putEvents": [{"delayMs": 600_000}]})).await;
    let response = setup.relay_within(Duration::from_millis(100), &[insert(5, "a", 1)]).await.unwrap();
    assert_eq!(response.checkpoint().unwrap().as_str(), "5");
    let response = setup.relay_within(Duration::ZERO, &[insert(6, "a", 1)]).await.unwrap();
    assert_eq!((response.checkpoint().unwrap().as_str(), setup.calls().len()), ("6", 0));
}

#[tokio::test]
async fn no_wait_outlasts_the_deadline() {
    let wait = Duration::from_secs(1_000_000);
    let retry =
        RetryPolicy { waits: Waits { first: wait, longest: wait }, margin: Duration::ZERO, ..RetryPolicy::default() };
    let faults = json!({"putEvents": [{"code": "ThrottlingException"}, {"delayMs": 600_000}]});
    let setup = setup_with_retries(retry, faults).await;
    let records: Vec<_> = (1..=11).map(|n| insert(n, &n.to_string(), 1)).collect();
    let response = setup.relay_within(Duration::from_millis(200), &records).await.unwrap();
    assert_eq!(response.checkpoint().unwrap().as_str(), "1");
}

#[tokio::test]
async fn repeated_record_is_unsettled_with_the_first() {
    let setup = setup(json!({"putEvents": [{"http": 403}]})).await;
    let records = [insert(20, "a", 1), insert(10, "a", 1), insert(30, "a", 1)];
    assert_eq!(setup.checkpoint(&records).await.as_deref(), Some("10"));
}

#[tokio::test]
async fn records_of_other_items_are_ignored() {
    let setup = setup(json!({})).await;
    let other = |sk: &str| {
        let mut record = insert(1, "a", 1);
        record["dynamodb"]["Keys"]["sk"]["S"] = json!(sk);
        record["dynamodb"]["NewImage"] = json!({"sk": {"S": sk}});
        record
    };
    let named = |name: &str| {
        let mut record = insert(1, "a", 1);
        record["eventName"] = json!(name);
        record
    };
    let mut expired = named("REMOVE");
    expired["userIdentity"] = json!({"type": "Service", "principalId": "dynamodb.amazonaws.com"});
    expired["dynamodb"].as_object_mut().unwrap().remove("NewImage");
    let records = [
        other("#METADATA"),
        other("EVENT#000000000001"),
        other("#SNAPSHOT"),
        other("SNAPSHOT#000000000001"),
        other("IDEMPOTENCY#OUTBOX#"),
        named("MODIFY"),
        expired,
        insert(2, "a", 2),
    ];
    assert_eq!(setup.checkpoint(&records).await, None);
    assert_eq!((setup.delivered(), setup.dead_letters().len()), (vec!["a-2".to_owned()], 0));
}

#[tokio::test]
async fn an_unsettled_record_without_a_number_fails_the_batch() {
    let setup = setup(json!({"entries": [{"containing": "a-1", "code": "AccessDeniedException"}]})).await;
    for number in [json!(null), json!("")] {
        let mut record = insert(1, "a", 1);
        record["dynamodb"]["SequenceNumber"] = number;
        let error = setup.relay(&[record, insert(2, "b", 1)]).await.unwrap_err();
        assert_eq!(error, RelayError::NoSequenceNumber { id: "a-1".to_owned() });
    }
    let mut settled = insert(3, "c", 1);
    settled["dynamodb"].as_object_mut().unwrap().remove("SequenceNumber");
    assert_eq!(setup.checkpoint(&[settled]).await, None);
}

#[tokio::test]
async fn change_of_an_aggregate_is_unsettled_until_the_queue_accepts_it() {
    let denied = json!({"sendMessage": [{"http": 403, "code": "AccessDenied", "forever": true}]});
    let setup = setup(denied).await.with_changes_queue();
    let records = [insert(1, "a", 1), moved(2, "a"), insert(3, "b", 1), moved(4, "b"), moved(5, "a")];
    let response = setup.relay_within(Duration::from_millis(200), &records).await.unwrap();
    assert_eq!(response.checkpoint().map(|number| number.as_str()), Some("2"));
    setup.fail(json!({}));
    assert_eq!(setup.checkpoint(&records[1..]).await, None);
    let queued: Vec<_> = setup.bus.queued().into_iter().map(|message| message.body).collect();
    assert_eq!(queued, [r#"{"changed":[["todo","a",7],["todo","b",7]]}"#]);
}

#[tokio::test]
async fn change_of_an_aggregate_reaches_the_projector_and_the_processes() {
    let lost = json!({"sendMessage": [{"http": 503}]});
    let setup = setup(lost).await.with_changes_queue().with_processes();
    assert_eq!(setup.checkpoint(&[moved(1, "a"), insert(2, "a", 1)]).await, None);
    let mut queued: Vec<_> = setup.bus.queued().into_iter().map(|message| (message.queue_url, message.body)).collect();
    queued.sort();
    let body = r#"{"changed":[["todo","a",7]]}"#;
    let to = |queue: &str| (format!("http://localhost/1/{queue}"), body.to_owned());
    assert_eq!(queued, [to("changes"), to("reactions")]);
    // A reactor of deadlines gets none of it.
    let without = crate::support::setup(json!({})).await.with_reactions_queue();
    assert_eq!(without.checkpoint(&[moved(1, "a")]).await, None);
    assert_eq!(without.bus.queued().len(), 0);
}

#[tokio::test]
async fn large_messages_share_a_request_up_to_the_size_limit() {
    let setup = setup(json!({})).await;
    let large = |n: u64| insert_detail(n, &n.to_string(), 1, &detail(&n.to_string(), 1, &"x".repeat(300 * 1024)));
    let records: Vec<_> = (0..8).map(large).collect();
    assert_eq!(setup.checkpoint(&records).await, None);
    let mut calls = setup.calls();
    calls.sort_unstable();
    assert_eq!(calls, [2, 3, 3]);
    assert!(setup.bus.put_events_calls().iter().all(|call| call.bytes < 1024 * 1024));
}

#[tokio::test]
async fn the_same_id_on_another_item_is_another_message() {
    let setup = setup(json!({})).await;
    let mut other = insert(2, "b", 1);
    other["dynamodb"]["NewImage"]["messageId"]["S"] = json!("a-1");
    assert_eq!(setup.checkpoint(&[insert(1, "a", 1), other, insert(3, "a", 1)]).await, None);
    assert_eq!(setup.delivered(), ["a-1", "b-1"]);
}
