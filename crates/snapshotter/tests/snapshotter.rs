//! The function on the embedded engine, behind a fault proxy that counts its calls and fails those that a test chooses.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::pin::pin;
use std::time::Duration;

use daybook_local_aws::dynamodb::InjectedFault;
use daybook_snapshotter::NoCheckpoint;
use daybook_table::{AggregateKey, keys};
use serde_json::json;
use support::{Bench, EVERY, checkpoint, due, handle, handle_within, insert, log, number, operations, text};

const THROTTLED: InjectedFault = InjectedFault::Refuse { status: 400, code: "ThrottlingException" };

#[tokio::test]
async fn due_event_leads_to_a_snapshot_of_all_events() {
    let bench = Bench::new().await;
    let key = bench.account("a", EVERY + 3).await;
    bench.command(&key, "RecordTransaction", json!({"desc": "too much", "amount": -100_000})).await;
    let due = bench.due_records(&key, 1).await;
    assert_eq!(due.len(), 1);
    assert_eq!(checkpoint(handle(&bench.snapshotter(), &due).await), None);

    let row = bench.snapshot(&key).await.unwrap();
    let rebuilt = bench.rebuilt(&key).await;
    assert_eq!(text(&row, "state"), rebuilt.state.text());
    assert_eq!((number(&row, "lastSeqNum"), number(&row, "messageSeq")), (EVERY + 4, 1));
    assert_eq!((rebuilt.version(), rebuilt.folded.message_seq()), (EVERY + 4, 1));
    assert_eq!(number(&row, "stateVersion"), 1);
}

#[tokio::test]
async fn several_due_records_of_an_aggregate_lead_to_one_snapshot() {
    let bench = Bench::new().await;
    let key = bench.account("a", EVERY * 5).await;
    let mut due = bench.due_records(&key, 1).await;
    assert_eq!(due.len(), 5);
    due.extend(due.clone());
    assert_eq!(checkpoint(handle(&bench.snapshotter(), &due).await), None);
    assert_eq!(bench.take_count("PutItem"), 1);
    assert_eq!(bench.snapshot_version(&key).await, Some(EVERY * 5));
}

#[tokio::test]
async fn batch_of_several_aggregates_takes_a_snapshot_of_each() {
    let bench = Bench::new().await;
    let mut keys = Vec::new();
    let mut batch = Vec::new();
    for (number, first) in (0..20_u64).zip((0..).step_by(2)) {
        let key = bench.account(&number.to_string(), EVERY + number).await;
        batch.extend(bench.due_records(&key, first).await);
        keys.push(key);
    }
    assert_eq!(checkpoint(handle(&bench.snapshotter(), &batch).await), None);
    assert_eq!(bench.take_count("PutItem"), 20);
    for (key, number) in keys.iter().zip(0..) {
        assert_eq!(bench.snapshot_version(key).await, Some(EVERY + number));
    }
}

#[tokio::test]
async fn repeated_late_and_reversed_batches_never_replace_a_newer_snapshot() {
    let bench = Bench::new().await;
    let key = bench.account("a", EVERY).await;
    let first = bench.due_records(&key, 1).await;
    bench.account("a", EVERY * 3).await;
    let all = bench.due_records(&key, 1).await;
    let backwards: Vec<_> = all.iter().rev().cloned().collect();
    let warm = bench.snapshotter();
    assert_eq!(checkpoint(handle(&warm, &all).await), None);
    let taken = bench.snapshot(&key).await.unwrap();
    assert_eq!(number(&taken, "lastSeqNum"), EVERY * 3);

    for batch in [&first, &all, &backwards, &first] {
        assert_eq!(checkpoint(handle(&warm, batch).await), None);
        assert_eq!(checkpoint(handle(&bench.snapshotter(), batch).await), None);
        // The row is unchanged, including its time.
        assert_eq!(bench.snapshot(&key).await.as_ref(), Some(&taken));
    }
}

#[tokio::test]
async fn overtaken_invocation_does_not_replace_a_newer_snapshot() {
    let bench = Bench::new().await;
    let key = bench.account("a", EVERY).await;
    let due = bench.due_records(&key, 1).await;
    let slow = bench.snapshotter();
    let mut slow = pin!(handle(&slow, &due));
    // The invocation has read the aggregate and not written the snapshot yet.
    bench.wire.hold(&mut slow, |calls| calls.len() == 2).await;
    bench.account("a", EVERY * 2).await;
    assert_eq!(checkpoint(handle(&bench.snapshotter_round_the_wire(), &due).await), None);
    assert_eq!(bench.snapshot_version(&key).await, Some(EVERY * 2));

    assert_eq!(checkpoint(slow.await), None);
    // The queries check whether the newer snapshot is valid, and whether a kept snapshot must expire.
    assert_eq!(operations(bench.wire.take_calls()), ["PutItem", "Query", "Query"]);
    assert_eq!(bench.snapshot_version(&key).await, Some(EVERY * 2));
}

#[tokio::test]
async fn snapshot_writes_and_unmarked_events_cause_no_calls() {
    let bench = Bench::new().await;
    let key = bench.account("a", EVERY).await;
    assert_eq!(checkpoint(handle(&bench.snapshotter(), &bench.due_records(&key, 1).await).await), None);
    bench.wire.take_calls();

    // Records of all rows of the aggregate, except the marked event.
    let mut others = bench.records(&key, 1).await;
    others.retain(|record| record["dynamodb"]["NewImage"].get("snapshotDue").is_none());
    let sort_keys: Vec<_> =
        others.iter().map(|record| record["dynamodb"]["Keys"]["sk"]["S"].as_str().unwrap()).collect();
    assert!(sort_keys.contains(&keys::SNAPSHOT) && sort_keys.contains(&keys::METADATA));
    assert_eq!(sort_keys.iter().filter(|sk| sk.starts_with(keys::EVENT_PREFIX)).count() as u64, EVERY - 1);
    assert_eq!(checkpoint(handle(&bench.snapshotter(), &others).await), None);
    assert_eq!(bench.wire.take_calls(), []);
}

#[tokio::test]
async fn batch_without_records_succeeds_without_calls() {
    let bench = Bench::new().await;
    assert_eq!(checkpoint(handle(&bench.snapshotter(), &[]).await), None);
    assert_eq!(bench.wire.take_calls(), []);
}

#[tokio::test]
async fn unreadable_record_is_skipped_and_the_others_are_processed() {
    let bench = Bench::new().await;
    let key = bench.account("a", EVERY).await;
    let mut batch = vec![json!("odd"), json!({"eventName": "INSERT"}), json!(null)];
    batch.extend(bench.due_records(&key, 1).await);
    assert_eq!(checkpoint(handle(&bench.snapshotter(), &batch).await), None);
    assert_eq!(bench.snapshot_version(&key).await, Some(EVERY));
}

#[tokio::test]
async fn transient_store_failure_is_retried() {
    // One query reads the events, another the kept snapshots that must expire.
    for (operation, calls) in [("Query", 3), ("GetItem", 2), ("PutItem", 2)] {
        let bench = Bench::new().await;
        let key = bench.account("a", EVERY).await;
        bench.wire.fail_next(operation, InjectedFault::BreakBefore);
        assert_eq!(checkpoint(handle(&bench.snapshotter(), &bench.due_records(&key, 1).await).await), None);
        assert_eq!(bench.take_count(operation), calls);
        assert_eq!(bench.snapshot_version(&key).await, Some(EVERY));
    }
}

#[tokio::test]
async fn snapshot_whose_response_was_lost_is_taken() {
    let bench = Bench::new().await;
    let key = bench.account("a", EVERY).await;
    bench.wire.fail_next("PutItem", InjectedFault::BreakAfter);
    assert_eq!(checkpoint(handle(&bench.snapshotter(), &bench.due_records(&key, 1).await).await), None);
    assert_eq!(bench.snapshot_version(&key).await, Some(EVERY));
}

/// Asserts that a permanent failure of an operation makes Lambda retry the batch from its first record.
async fn assert_whole_batch_is_retried(operation: &'static str, fault: InjectedFault) {
    let bench = Bench::new().await;
    let mut batch = Vec::new();
    for (id, first) in [("a", 30), ("b", 9), ("c", 100)] {
        let key = bench.account(id, EVERY * 2).await;
        batch.extend(bench.due_records(&key, first).await);
    }
    bench.fail(operation, &fault);
    assert_eq!(checkpoint(handle(&bench.snapshotter(), &batch).await).as_deref(), Some("9"), "{operation} {fault:?}");
    for id in ["a", "b", "c"] {
        assert_eq!(bench.snapshot_version(&AggregateKey::new("account", id)).await, None);
    }
}

#[tokio::test]
async fn batch_is_retried_while_events_cannot_be_read() {
    assert_whole_batch_is_retried("Query", THROTTLED).await;
}

#[tokio::test]
async fn batch_is_retried_while_snapshots_cannot_be_read() {
    assert_whole_batch_is_retried("GetItem", InjectedFault::Refuse { status: 500, code: "InternalServerError" }).await;
}

#[tokio::test]
async fn batch_is_retried_while_snapshots_cannot_be_written() {
    assert_whole_batch_is_retried("PutItem", InjectedFault::BreakBefore).await;
}

#[tokio::test]
async fn batch_is_retried_while_permissions_are_missing() {
    for operation in ["Query", "GetItem", "PutItem"] {
        assert_whole_batch_is_retried(operation, InjectedFault::Refuse { status: 400, code: "AccessDeniedException" })
            .await;
    }
}

#[tokio::test]
async fn batch_with_a_failed_aggregate_is_retried_from_its_first_record_and_the_others_are_taken() {
    let bench = Bench::new().await;
    let snapshotter = bench.snapshotter();
    // This instance has cached the aggregate, so it needs no GetItem for it.
    let seen = bench.account("seen", EVERY).await;
    assert_eq!(checkpoint(handle(&snapshotter, &bench.due_records(&seen, 1).await).await), None);
    bench.account("seen", EVERY * 2).await;

    let [b, c] = [bench.account("b", EVERY * 2).await, bench.account("c", EVERY).await];
    let mut batch = bench.due_records(&seen, 2).await;
    batch.extend(bench.due_records(&c, 12).await);
    batch.extend(bench.due_records(&b, 9).await);
    batch.push(due(4, &AggregateKey::new("forgotten", "1")));
    bench.fail("GetItem", &THROTTLED);
    assert_eq!(checkpoint(handle(&snapshotter, &batch).await).as_deref(), Some("9"));
    assert_eq!(bench.snapshot_version(&seen).await, Some(EVERY * 2));
    assert_eq!((bench.snapshot_version(&b).await, bench.snapshot_version(&c).await), (None, None));

    // The retried batch succeeds.
    assert_eq!(checkpoint(handle(&bench.snapshotter_round_the_wire(), &batch).await), None);
    assert_eq!((bench.snapshot_version(&b).await, bench.snapshot_version(&c).await), (Some(EVERY * 2), Some(EVERY)));
}

#[tokio::test]
async fn batch_with_one_failed_aggregate_is_retried_from_that_aggregate() {
    let bench = Bench::new().await;
    let mut batch = Vec::new();
    for (id, first) in [("a", 30), ("b", 9), ("c", 100), ("d", 1)] {
        let key = bench.account(id, EVERY).await;
        batch.extend(bench.due_records(&key, first).await);
    }
    bench.wire.fail_next("PutItem", InjectedFault::Refuse { status: 400, code: "AccessDeniedException" });
    let from = checkpoint(handle(&bench.snapshotter(), &batch).await).unwrap();
    // The order of the calls decides which aggregate fails.
    for (id, first) in [("a", "30"), ("b", "9"), ("c", "100"), ("d", "1")] {
        let expected = (first != from).then_some(EVERY);
        assert_eq!(bench.snapshot_version(&AggregateKey::new("account", id)).await, expected, "{id}, from {from}");
    }
}

#[tokio::test]
async fn failed_aggregate_without_a_sequence_number_makes_the_whole_batch_retried() {
    let bench = Bench::new().await;
    let [a, b] = [bench.account("a", EVERY).await, bench.account("b", EVERY).await];
    let mut batch = bench.due_records(&a, 1).await;
    batch.extend(bench.due_records(&b, 2).await);
    for number in [json!(null), json!(""), json!("one")] {
        batch[1]["dynamodb"]["SequenceNumber"] = number.clone();
        bench.wire.fail_next("PutItem", InjectedFault::Refuse { status: 400, code: "AccessDeniedException" });
        bench.wire.fail_next("PutItem", InjectedFault::Refuse { status: 400, code: "AccessDeniedException" });
        assert_eq!(handle(&bench.snapshotter(), &batch).await, Err(NoCheckpoint), "{number}");
    }
    // Without a failure, the number is not needed.
    assert_eq!(checkpoint(handle(&bench.snapshotter(), &batch).await), None);
    assert_eq!(bench.snapshot_version(&b).await, Some(EVERY));
}

#[tokio::test]
async fn aggregate_that_times_out_is_skipped_and_an_unstarted_one_is_retried() {
    let bench = Bench::new().await;
    let mut batch = Vec::new();
    let mut keys = Vec::new();
    // Eight aggregates are processed concurrently, so the last in the stream is not started, although it is the first by name.
    for number in (1..=9).rev() {
        let key = bench.account(&format!("a{}", 9 - number), EVERY).await;
        batch.extend(bench.due_records(&key, number).await);
        keys.push(key);
    }
    for _ in 0..8 {
        bench.wire.fail_next("GetItem", InjectedFault::Hang);
    }
    let short = Duration::from_millis(1_300);
    let answer = handle_within(short, &bench.snapshotter(), &batch).await;
    assert_eq!(checkpoint(answer).as_deref(), Some("9"));
    for key in &keys {
        assert_eq!(bench.snapshot_version(key).await, None, "{key}");
    }
    // A later batch takes the snapshots.
    assert_eq!(checkpoint(handle(&bench.snapshotter(), &batch).await), None);
    for key in &keys {
        assert_eq!(bench.snapshot_version(key).await, Some(EVERY), "{key}");
    }
}

#[tokio::test]
async fn aggregate_started_late_that_times_out_is_retried() {
    let bench = Bench::new().await;
    // Eight aggregates are processed concurrently, and this is the ninth, although the others end at once.
    let forgotten = |number: u64| due(number, &AggregateKey::new("forgotten", number.to_string()));
    let mut batch: Vec<_> = (1..=8).map(forgotten).collect();
    let key = bench.account("a", EVERY).await;
    batch.extend(bench.due_records(&key, 9).await);
    bench.wire.fail_next("GetItem", InjectedFault::Hang);
    let short = Duration::from_millis(1_300);
    let answer = handle_within(short, &bench.snapshotter(), &batch).await;
    assert_eq!(checkpoint(answer).as_deref(), Some("9"));
}

#[tokio::test]
async fn aggregate_of_an_unknown_type_is_skipped() {
    let bench = Bench::new().await;
    let key = bench.account("a", EVERY).await;
    let mut batch = vec![due(1, &AggregateKey::new("forgotten", "1"))];
    batch.extend(bench.due_records(&key, 2).await);
    assert_eq!(checkpoint(handle(&bench.snapshotter(), &batch).await), None);
    assert_eq!(operations(bench.wire.take_calls()), ["GetItem", "PutItem", "Query", "Query"]);
    assert_eq!(bench.snapshot_version(&key).await, Some(EVERY));
}

#[tokio::test]
async fn aggregate_without_rows_gets_no_snapshot() {
    let bench = Bench::new().await;
    let key = AggregateKey::new("account", "nobody");
    assert_eq!(checkpoint(handle(&bench.snapshotter(), &[due(1, &key)]).await), None);
    assert_eq!(bench.snapshot(&key).await, None);
}

#[tokio::test]
async fn aggregate_with_full_history_gets_no_snapshot() {
    let bench = Bench::new().await;
    let key = AggregateKey::new("journal", "1");
    bench.command(&key, "Begin", json!({})).await;
    assert_eq!(checkpoint(handle(&bench.snapshotter(), &[due(1, &key)]).await), None);
    assert_eq!(bench.wire.take_calls(), []);
}

#[tokio::test]
async fn aggregate_with_a_missing_event_is_skipped() {
    let bench = Bench::new().await;
    let [torn, whole] = [bench.account("torn", EVERY * 2).await, bench.account("whole", EVERY).await];
    let mut batch = bench.due_records(&torn, 1).await;
    batch.extend(bench.due_records(&whole, 3).await);
    for missing in [EVERY + 5, 1] {
        bench.delete_event(&torn, missing).await;
        assert_eq!(checkpoint(handle(&bench.snapshotter(), &batch).await), None);
        assert_eq!(bench.snapshot(&torn).await, None);
        assert_eq!(bench.snapshot_version(&whole).await, Some(EVERY));
    }
}

#[tokio::test]
async fn aggregate_with_an_event_of_a_newer_release_is_skipped() {
    let bench = Bench::new().await;
    let [ahead, known] = [bench.account("ahead", EVERY * 2).await, bench.account("known", EVERY).await];
    let mut batch = bench.due_records(&ahead, 1).await;
    batch.extend(bench.due_records(&known, 3).await);
    bench.tamper(&ahead, EVERY + 5, "eventType", "MoneyLent").await;
    assert_eq!(checkpoint(handle(&bench.snapshotter(), &batch).await), None);
    assert_eq!(bench.snapshot(&ahead).await, None);
    assert_eq!(bench.snapshot_version(&known).await, Some(EVERY));
}

#[tokio::test]
async fn aggregate_with_an_unreadable_event_row_is_skipped() {
    let bench = Bench::new().await;
    let key = bench.account("a", EVERY).await;
    let due = bench.due_records(&key, 1).await;
    bench.tamper(&key, 4, "data", "{").await;
    assert_eq!(checkpoint(handle(&bench.snapshotter(), &due).await), None);
    assert_eq!(bench.snapshot(&key).await, None);
}

#[tokio::test]
async fn aggregate_with_a_too_large_state_is_skipped_and_accepts_commands() {
    let bench = Bench::new().await;
    let key = bench.large_notebook("1").await;
    assert_eq!(checkpoint(handle(&bench.snapshotter(), &[due(1, &key)]).await), None);
    assert_eq!(bench.snapshot(&key).await, None);
    assert_eq!(bench.take_count("PutItem"), 0);

    bench.command(&key, "Write", json!({"page": "one more"})).await;
    assert_eq!(bench.rebuilt(&key).await.version(), 6);
}

#[tokio::test]
async fn large_state_is_stored_compressed_and_can_be_loaded() {
    let bench = Bench::new().await;
    let key = AggregateKey::new("notebook", "1");
    bench.command(&key, "Begin", json!({})).await;
    for number in 0..4 {
        bench.command(&key, "Write", json!({"page": number.to_string().repeat(300 * 1024)})).await;
    }
    let snapshotter = bench.snapshotter();
    assert_eq!(checkpoint(handle(&snapshotter, &[due(1, &key)]).await), None);
    assert!(bench.snapshot(&key).await.unwrap()["state"].is_b());

    bench.command(&key, "Write", json!({"page": "one more"})).await;
    let from_the_snapshot = bench.loaded(&key).await;
    assert_eq!(from_the_snapshot.state, bench.rebuilt(&key).await.state);
}

#[tokio::test]
async fn modified_or_removed_event_is_not_due() {
    let bench = Bench::new().await;
    let key = bench.account("a", EVERY).await;
    let image = bench.due_records(&key, 1).await.remove(0)["dynamodb"]["NewImage"].take();
    for name in ["MODIFY", "REMOVE"] {
        let mut record = insert(1, image.clone());
        record["eventName"] = name.into();
        assert_eq!(checkpoint(handle(&bench.snapshotter(), &[record]).await), None);
    }
    assert_eq!(bench.wire.take_calls(), []);
}

// Logs.

#[tokio::test]
async fn batch_logs_one_line_for_itself_and_one_per_aggregate() {
    let bench = Bench::new().await;
    let [taken, torn] = [bench.account("taken", EVERY).await, bench.account("torn", EVERY).await];
    let ahead = bench.account("ahead", EVERY).await;
    bench.delete_event(&torn, 5).await;
    bench.tamper(&ahead, 5, "eventType", "MoneyLent").await;
    let large = bench.large_notebook("large").await;
    let unknown = AggregateKey::new("unknown", "1");
    let batch = [due(1, &taken), due(2, &torn), due(3, &ahead), due(4, &large), due(5, &unknown), json!("odd")];
    log::take();
    assert_eq!(checkpoint(handle(&bench.snapshotter(), &batch).await), None);

    let mut lines = log::take();
    let last = lines.pop().unwrap();
    assert_eq!((&last["level"], &last["message"]), (&json!("INFO"), &json!("batch")));
    assert_eq!(["records", "aggregates", "failed"].map(|name| last[name].as_u64()), [6, 5, 0].map(Some));
    // The aggregates are folded concurrently.
    lines.sort_unstable_by_key(|line| line["aggregate"].as_str().unwrap_or_default().to_owned());
    let fields = |line: &serde_json::Value| ["level", "message", "aggregate"].map(|name| line[name].clone());
    let logged: Vec<_> = lines.iter().map(fields).collect();
    let impossible = "no snapshot can be taken";
    let expected = [
        [json!("ERROR"), json!(impossible), json!(null)],
        ["WARN", "left to the newer release", "account/ahead"].map(Into::into),
        ["INFO", "snapshot taken", "account/taken"].map(Into::into),
        ["ERROR", impossible, "account/torn"].map(Into::into),
        ["WARN", "state too large for a snapshot", "notebook/large"].map(Into::into),
        ["WARN", "no aggregate of this type is registered, no snapshot taken", "unknown/1"].map(Into::into),
    ];
    assert_eq!(logged, expected);
    assert!(lines[0]["error"].as_str().unwrap().starts_with("the record cannot be read"), "{}", lines[0]);
    assert_eq!(lines[2]["version"], EVERY);
    assert_eq!(lines[3]["sequence_number"], "2");
    assert!(lines[3]["error"].as_str().unwrap().contains("event 5 is missing"), "{}", lines[3]);
    assert!(lines[4]["bytes"].as_u64().unwrap() > 400 * 1024, "{}", lines[4]);
}
