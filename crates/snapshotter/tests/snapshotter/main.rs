//! The function on the embedded engine, behind a proxy that records its calls and injects faults.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::pin::pin;
use std::time::Duration;

use daybook_decider::Registry;
use daybook_snapshotter::NoCheckpoint;
use daybook_table::{AggregateKey, keys};
use daybook_test_support::fault_proxy::InjectedFault;
use daybook_test_support::notebook::Notebook;
use daybook_test_support::row::{number, text};
use daybook_test_support::stream_record::insert;
use serde_json::json;
use support::{EVERY, Setup, checkpoint, due, handle, handle_within, take_log};

const THROTTLED: InjectedFault = InjectedFault::Refuse { status: 400, code: "ThrottlingException" };

#[tokio::test]
async fn due_event_leads_to_a_snapshot_of_all_events() {
    let setup = Setup::new().await;
    let key = setup.account("a", EVERY + 3).await;
    setup.command(&key, "RecordTransaction", json!({"desc": "too much", "amount": -100_000})).await;
    let due = setup.due_records(&key, 1).await;
    assert_eq!(due.len(), 1);
    assert_eq!(checkpoint(handle(&setup.snapshotter(), &due).await), None);

    let row = setup.snapshot(&key).await.unwrap();
    let rebuilt = setup.rebuilt(&key).await;
    assert_eq!(text(&row, "state"), rebuilt.state.text());
    assert_eq!((number(&row, "lastSeqNum"), number(&row, "messageSeq")), (EVERY + 4, 1));
    assert_eq!((rebuilt.version(), rebuilt.folded.message_seq()), (EVERY + 4, 1));
    assert_eq!(number(&row, "stateVersion"), 1);
}

#[tokio::test]
async fn several_due_records_of_an_aggregate_lead_to_one_snapshot() {
    let setup = Setup::new().await;
    let key = setup.account("a", EVERY * 5).await;
    let mut due = setup.due_records(&key, 1).await;
    assert_eq!(due.len(), 5);
    due.extend(due.clone());
    assert_eq!(checkpoint(handle(&setup.snapshotter(), &due).await), None);
    assert_eq!(setup.take_count("PutItem"), 1);
    assert_eq!(setup.snapshot_version(&key).await, Some(EVERY * 5));
}

#[tokio::test]
async fn batch_of_several_aggregates_takes_a_snapshot_of_each() {
    let setup = Setup::new().await;
    let mut keys = Vec::new();
    let mut batch = Vec::new();
    for (number, first) in (0..20_u64).zip((0..).step_by(2)) {
        let key = setup.account(&number.to_string(), EVERY + number).await;
        batch.extend(setup.due_records(&key, first).await);
        keys.push(key);
    }
    assert_eq!(checkpoint(handle(&setup.snapshotter(), &batch).await), None);
    assert_eq!(setup.take_count("PutItem"), 20);
    for (key, number) in keys.iter().zip(0..) {
        assert_eq!(setup.snapshot_version(key).await, Some(EVERY + number));
    }
}

#[tokio::test]
async fn repeated_late_and_reversed_batches_never_replace_a_newer_snapshot() {
    let setup = Setup::new().await;
    let key = setup.account("a", EVERY).await;
    let first = setup.due_records(&key, 1).await;
    setup.account("a", EVERY * 3).await;
    let all = setup.due_records(&key, 1).await;
    let backwards: Vec<_> = all.iter().rev().cloned().collect();
    let warm = setup.snapshotter();
    assert_eq!(checkpoint(handle(&warm, &all).await), None);
    let taken = setup.snapshot(&key).await.unwrap();
    assert_eq!(number(&taken, "lastSeqNum"), EVERY * 3);

    for batch in [&first, &all, &backwards, &first] {
        assert_eq!(checkpoint(handle(&warm, batch).await), None);
        assert_eq!(checkpoint(handle(&setup.snapshotter(), batch).await), None);
        // The whole row is unchanged, including its time.
        assert_eq!(setup.snapshot(&key).await.as_ref(), Some(&taken));
    }
}

#[tokio::test]
async fn overtaken_invocation_does_not_replace_a_newer_snapshot() {
    let setup = Setup::new().await;
    let key = setup.account("a", EVERY).await;
    let due = setup.due_records(&key, 1).await;
    let slow = setup.snapshotter();
    let mut slow = pin!(handle(&slow, &due));
    // The invocation has read, and has not written yet.
    setup.table.proxy.hold(&mut slow, |calls| calls.len() == 3).await;
    setup.account("a", EVERY * 2).await;
    assert_eq!(checkpoint(handle(&setup.direct_snapshotter(), &due).await), None);
    assert_eq!(setup.snapshot_version(&key).await, Some(EVERY * 2));

    assert_eq!(checkpoint(slow.await), None);
    // After its rejected write, it reads the last event of the newer snapshot.
    assert_eq!(setup.table.operations(), ["GetItem", "PutItem"]);
    assert_eq!(setup.snapshot_version(&key).await, Some(EVERY * 2));
}

#[tokio::test]
async fn snapshot_writes_and_unmarked_events_cause_no_calls() {
    let setup = Setup::new().await;
    let key = setup.account("a", EVERY).await;
    assert_eq!(checkpoint(handle(&setup.snapshotter(), &setup.due_records(&key, 1).await).await), None);
    setup.table.proxy.take_calls();

    // All rows of the aggregate except the event that is marked as due.
    let mut others = setup.records(&key, 1).await;
    others.retain(|record| record["dynamodb"]["NewImage"].get("snapshotDue").is_none());
    let sort_keys: Vec<_> =
        others.iter().map(|record| record["dynamodb"]["Keys"]["sk"]["S"].as_str().unwrap()).collect();
    assert!(sort_keys.contains(&keys::SNAPSHOT) && sort_keys.contains(&keys::METADATA));
    assert_eq!(sort_keys.iter().filter(|sk| sk.starts_with(keys::EVENT_PREFIX)).count() as u64, EVERY - 1);
    assert_eq!(checkpoint(handle(&setup.snapshotter(), &others).await), None);
    assert_eq!(setup.table.proxy.take_calls(), []);
}

#[tokio::test]
async fn batch_without_records_succeeds_without_calls() {
    let setup = Setup::new().await;
    assert_eq!(checkpoint(handle(&setup.snapshotter(), &[]).await), None);
    assert_eq!(setup.table.proxy.take_calls(), []);
}

#[tokio::test]
async fn unreadable_record_is_skipped_and_the_others_are_processed() {
    let setup = Setup::new().await;
    let key = setup.account("a", EVERY).await;
    let mut batch = vec![json!("odd"), json!({"eventName": "INSERT"}), json!(null)];
    batch.extend(setup.due_records(&key, 1).await);
    assert_eq!(checkpoint(handle(&setup.snapshotter(), &batch).await), None);
    assert_eq!(setup.snapshot_version(&key).await, Some(EVERY));
}

#[tokio::test]
async fn transient_store_failure_is_retried() {
    // Two queries read the events.
    for (operation, calls) in [("Query", 3), ("GetItem", 2), ("PutItem", 2)] {
        let setup = Setup::new().await;
        let key = setup.account("a", EVERY).await;
        setup.table.proxy.fail_next(operation, InjectedFault::BreakBefore);
        assert_eq!(checkpoint(handle(&setup.snapshotter(), &setup.due_records(&key, 1).await).await), None);
        assert_eq!(setup.take_count(operation), calls);
        assert_eq!(setup.snapshot_version(&key).await, Some(EVERY));
    }
}

#[tokio::test]
async fn snapshot_whose_response_was_lost_is_taken() {
    let setup = Setup::new().await;
    let key = setup.account("a", EVERY).await;
    setup.table.proxy.fail_next("PutItem", InjectedFault::BreakAfter);
    assert_eq!(checkpoint(handle(&setup.snapshotter(), &setup.due_records(&key, 1).await).await), None);
    assert_eq!(setup.snapshot_version(&key).await, Some(EVERY));
}

/// Asserts that a batch is retried from its lowest sequence number while all calls of an operation fail.
async fn assert_whole_batch_is_retried(operation: &'static str, fault: InjectedFault) {
    let setup = Setup::new().await;
    let mut batch = Vec::new();
    for (id, first) in [("a", 30), ("b", 9), ("c", 100)] {
        let key = setup.account(id, EVERY * 2).await;
        batch.extend(setup.due_records(&key, first).await);
    }
    setup.fail(operation, &fault);
    assert_eq!(checkpoint(handle(&setup.snapshotter(), &batch).await).as_deref(), Some("9"), "{operation} {fault:?}");
    for id in ["a", "b", "c"] {
        assert_eq!(setup.snapshot_version(&AggregateKey::new("account", id)).await, None);
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
    let setup = Setup::new().await;
    let snapshotter = setup.snapshotter();
    // The instance caches this aggregate, so a later fold continues from the cached state without a GetItem.
    let seen = setup.account("seen", EVERY).await;
    assert_eq!(checkpoint(handle(&snapshotter, &setup.due_records(&seen, 1).await).await), None);
    setup.account("seen", EVERY * 2).await;

    let [b, c] = [setup.account("b", EVERY * 2).await, setup.account("c", EVERY).await];
    let mut batch = setup.due_records(&seen, 2).await;
    batch.extend(setup.due_records(&c, 12).await);
    batch.extend(setup.due_records(&b, 9).await);
    batch.push(due(4, &AggregateKey::new("forgotten", "1")));
    setup.fail("GetItem", &THROTTLED);
    assert_eq!(checkpoint(handle(&snapshotter, &batch).await).as_deref(), Some("9"));
    assert_eq!(setup.snapshot_version(&seen).await, Some(EVERY * 2));
    assert_eq!((setup.snapshot_version(&b).await, setup.snapshot_version(&c).await), (None, None));

    // The retried batch succeeds.
    assert_eq!(checkpoint(handle(&setup.direct_snapshotter(), &batch).await), None);
    assert_eq!((setup.snapshot_version(&b).await, setup.snapshot_version(&c).await), (Some(EVERY * 2), Some(EVERY)));
}

#[tokio::test]
async fn batch_with_one_failed_aggregate_is_retried_from_that_aggregate() {
    let setup = Setup::new().await;
    let mut batch = Vec::new();
    for (id, first) in [("a", 30), ("b", 9), ("c", 100), ("d", 1)] {
        let key = setup.account(id, EVERY).await;
        batch.extend(setup.due_records(&key, first).await);
    }
    setup.table.proxy.fail_next("PutItem", InjectedFault::Refuse { status: 400, code: "AccessDeniedException" });
    let from = checkpoint(handle(&setup.snapshotter(), &batch).await).unwrap();
    // The order of the concurrent calls decides which aggregate fails.
    for (id, first) in [("a", "30"), ("b", "9"), ("c", "100"), ("d", "1")] {
        let expected = (first != from).then_some(EVERY);
        assert_eq!(setup.snapshot_version(&AggregateKey::new("account", id)).await, expected, "{id}, from {from}");
    }
}

#[tokio::test]
async fn batch_with_a_failed_aggregate_without_a_sequence_number_is_retried_as_a_whole() {
    let setup = Setup::new().await;
    let [a, b] = [setup.account("a", EVERY).await, setup.account("b", EVERY).await];
    let mut batch = setup.due_records(&a, 1).await;
    batch.extend(setup.due_records(&b, 2).await);
    for number in [json!(null), json!(""), json!("one")] {
        batch[1]["dynamodb"]["SequenceNumber"] = number.clone();
        setup.table.proxy.fail_next("PutItem", InjectedFault::Refuse { status: 400, code: "AccessDeniedException" });
        setup.table.proxy.fail_next("PutItem", InjectedFault::Refuse { status: 400, code: "AccessDeniedException" });
        assert_eq!(handle(&setup.snapshotter(), &batch).await, Err(NoCheckpoint), "{number}");
    }
    // Without a failure, no sequence number is needed.
    assert_eq!(checkpoint(handle(&setup.snapshotter(), &batch).await), None);
    assert_eq!(setup.snapshot_version(&b).await, Some(EVERY));
}

#[tokio::test]
async fn aggregate_that_times_out_is_skipped_and_an_unstarted_one_is_retried() {
    let setup = Setup::new().await;
    let mut batch = Vec::new();
    let mut keys = Vec::new();
    // Eight aggregates are folded concurrently, so the last one in the stream is not started, although it is the first
    // by name.
    for number in (1..=9).rev() {
        let key = setup.account(&format!("a{}", 9 - number), EVERY).await;
        batch.extend(setup.due_records(&key, number).await);
        keys.push(key);
    }
    for _ in 0..8 {
        setup.table.proxy.fail_next("GetItem", InjectedFault::Hang);
    }
    let short = Duration::from_millis(1_300);
    let response = handle_within(short, &setup.snapshotter(), &batch).await;
    assert_eq!(checkpoint(response).as_deref(), Some("9"));
    for key in &keys {
        assert_eq!(setup.snapshot_version(key).await, None, "{key}");
    }
    // With enough time, the next invocation takes all snapshots.
    assert_eq!(checkpoint(handle(&setup.snapshotter(), &batch).await), None);
    for key in &keys {
        assert_eq!(setup.snapshot_version(key).await, Some(EVERY), "{key}");
    }
}

#[tokio::test]
async fn aggregate_started_late_that_times_out_is_retried() {
    let setup = Setup::new().await;
    // Eight aggregates are folded concurrently. The ninth counts as started late, although the other eight end at once.
    let forgotten = |number: u64| due(number, &AggregateKey::new("forgotten", number.to_string()));
    let mut batch: Vec<_> = (1..=8).map(forgotten).collect();
    let key = setup.account("a", EVERY).await;
    batch.extend(setup.due_records(&key, 9).await);
    setup.table.proxy.fail_next("GetItem", InjectedFault::Hang);
    let short = Duration::from_millis(1_300);
    let response = handle_within(short, &setup.snapshotter(), &batch).await;
    assert_eq!(checkpoint(response).as_deref(), Some("9"));
}

#[tokio::test]
async fn aggregate_of_an_unknown_type_is_skipped() {
    let setup = Setup::new().await;
    let key = setup.account("a", EVERY).await;
    let mut batch = vec![due(1, &AggregateKey::new("forgotten", "1"))];
    batch.extend(setup.due_records(&key, 2).await);
    assert_eq!(checkpoint(handle(&setup.snapshotter(), &batch).await), None);
    assert_eq!(setup.table.operations(), ["GetItem", "PutItem", "Query", "Query"]);
    assert_eq!(setup.snapshot_version(&key).await, Some(EVERY));
}

#[tokio::test]
async fn aggregate_without_rows_gets_no_snapshot() {
    let setup = Setup::new().await;
    let key = AggregateKey::new("account", "nobody");
    assert_eq!(checkpoint(handle(&setup.snapshotter(), &[due(1, &key)]).await), None);
    assert_eq!(setup.snapshot(&key).await, None);
}

#[tokio::test]
async fn aggregate_with_full_history_gets_no_snapshot() {
    let setup = Setup::new().await;
    let key = AggregateKey::new("notebook", "1");
    setup.command(&key, "Start", json!({"lines": [""]})).await;
    let snapshotter = setup.snapshotter_with(Registry::new().with::<Notebook<1, true>>().unwrap());
    assert_eq!(checkpoint(handle(&snapshotter, &[due(1, &key)]).await), None);
    assert_eq!(setup.table.proxy.take_calls(), []);
}

#[tokio::test]
async fn aggregate_with_a_missing_event_is_skipped() {
    let setup = Setup::new().await;
    let [torn, whole] = [setup.account("torn", EVERY * 2).await, setup.account("whole", EVERY).await];
    let mut batch = setup.due_records(&torn, 1).await;
    batch.extend(setup.due_records(&whole, 3).await);
    for missing in [EVERY + 5, 1] {
        setup.delete_event(&torn, missing).await;
        assert_eq!(checkpoint(handle(&setup.snapshotter(), &batch).await), None);
        assert_eq!(setup.snapshot(&torn).await, None);
        assert_eq!(setup.snapshot_version(&whole).await, Some(EVERY));
    }
}

#[tokio::test]
async fn aggregate_with_an_event_of_a_newer_release_is_skipped() {
    let setup = Setup::new().await;
    let [ahead, known] = [setup.account("ahead", EVERY * 2).await, setup.account("known", EVERY).await];
    let mut batch = setup.due_records(&ahead, 1).await;
    batch.extend(setup.due_records(&known, 3).await);
    setup.tamper(&ahead, EVERY + 5, "eventType", "MoneyLent").await;
    assert_eq!(checkpoint(handle(&setup.snapshotter(), &batch).await), None);
    assert_eq!(setup.snapshot(&ahead).await, None);
    assert_eq!(setup.snapshot_version(&known).await, Some(EVERY));
}

#[tokio::test]
async fn aggregate_with_an_unreadable_event_row_is_skipped() {
    let setup = Setup::new().await;
    let key = setup.account("a", EVERY).await;
    let due = setup.due_records(&key, 1).await;
    setup.tamper(&key, 4, "data", "{").await;
    assert_eq!(checkpoint(handle(&setup.snapshotter(), &due).await), None);
    assert_eq!(setup.snapshot(&key).await, None);
}

#[tokio::test]
async fn aggregate_with_a_too_large_state_is_skipped_and_accepts_commands() {
    let setup = Setup::new().await;
    let key = setup.large_notebook("1").await;
    assert_eq!(checkpoint(handle(&setup.snapshotter(), &[due(1, &key)]).await), None);
    assert_eq!(setup.snapshot(&key).await, None);
    assert_eq!(setup.take_count("PutItem"), 0);

    setup.command(&key, "Write", json!({"lines": ["one more"]})).await;
    assert_eq!(setup.rebuilt(&key).await.version(), 6);
}

#[tokio::test]
async fn large_state_is_stored_compressed_and_can_be_loaded() {
    let setup = Setup::new().await;
    let key = AggregateKey::new("notebook", "1");
    setup.command(&key, "Start", json!({"lines": [""]})).await;
    for number in 0..4 {
        setup.command(&key, "Write", json!({"lines": [number.to_string().repeat(300 * 1024)]})).await;
    }
    let snapshotter = setup.snapshotter();
    assert_eq!(checkpoint(handle(&snapshotter, &[due(1, &key)]).await), None);
    assert!(setup.snapshot(&key).await.unwrap()["state"].is_b());

    setup.command(&key, "Write", json!({"lines": ["one more"]})).await;
    let from_the_snapshot = setup.loaded(&key).await;
    assert_eq!(from_the_snapshot.state, setup.rebuilt(&key).await.state);
}

#[tokio::test]
async fn modified_or_removed_event_is_not_due() {
    let setup = Setup::new().await;
    let key = setup.account("a", EVERY).await;
    let image = setup.due_records(&key, 1).await.remove(0)["dynamodb"]["NewImage"].take();
    for name in ["MODIFY", "REMOVE"] {
        let mut record = insert(1, image.clone());
        record["eventName"] = name.into();
        assert_eq!(checkpoint(handle(&setup.snapshotter(), &[record]).await), None);
    }
    assert_eq!(setup.table.proxy.take_calls(), []);
}

// Logs.

#[tokio::test]
async fn batch_logs_one_line_for_itself_and_one_per_aggregate() {
    let setup = Setup::new().await;
    let [taken, torn] = [setup.account("taken", EVERY).await, setup.account("torn", EVERY).await];
    let ahead = setup.account("ahead", EVERY).await;
    setup.delete_event(&torn, 5).await;
    setup.tamper(&ahead, 5, "eventType", "MoneyLent").await;
    let large = setup.large_notebook("large").await;
    let unknown = AggregateKey::new("unknown", "1");
    let batch = [due(1, &taken), due(2, &torn), due(3, &ahead), due(4, &large), due(5, &unknown), json!("odd")];
    take_log();
    assert_eq!(checkpoint(handle(&setup.snapshotter(), &batch).await), None);

    let mut lines = take_log();
    let last = lines.pop().unwrap();
    assert_eq!((&last["level"], &last["message"]), (&json!("INFO"), &json!("batch")));
    assert_eq!(["records", "aggregates", "failed"].map(|name| last[name].as_u64()), [6, 5, 0].map(Some));
    // The aggregates are folded concurrently, so their lines are in any order.
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

#[tokio::test]
async fn aggregate_whose_code_panics_is_skipped_and_the_others_are_taken() {
    let setup = Setup::new().await;
    let snapshotter = setup.snapshotter();
    let (broken, sound) = (setup.broken("1").await, setup.account("a", EVERY).await);
    take_log();
    let batch = [due(1, &broken), due(2, &sound), due(3, &broken)];
    assert_eq!(checkpoint(handle(&snapshotter, &batch).await), None);
    assert_eq!((setup.snapshot_version(&sound).await, setup.snapshot(&broken).await), (Some(EVERY), None));
    let errors: Vec<_> = take_log().into_iter().filter(|line| line["level"] == "ERROR").collect();
    let [line] = &errors[..] else { panic!("{errors:?}") };
    assert_eq!((&line["aggregate"], &line["sequence_number"]), (&json!("fragile/1"), &json!("1")));
    let error = line["error"].as_str().unwrap();
    for part in ["event 2", "evolve of fragile panicked", "fragile.rs:", "evolve of fragile breaks"] {
        assert!(error.contains(part), "{part} is not in {error}");
    }
    // The same instance goes on.
    let other = setup.account("b", EVERY).await;
    assert_eq!(checkpoint(handle(&snapshotter, &[due(4, &broken), due(5, &other)]).await), None);
    assert_eq!(setup.snapshot_version(&other).await, Some(EVERY));
}
