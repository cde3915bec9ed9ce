//! Snapshots that are taken, skipped, ignored and replaced. None of them makes the result of a load wrong.

use std::io::Write;
use std::pin::pin;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use daybook_event_store::limits::{MAX_ITEM, item_size};
use daybook_event_store::{EventStore, SnapshotOutcome, StoreSettings};
use daybook_table::keys;
use daybook_test_support::clock::now;
use daybook_test_support::notebook::Notebook;
use daybook_test_support::row::{Item, notation, number, text};
use daybook_test_support::table::{TestTable, settings};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;

use crate::append::expect_checksum;
use crate::support::{Subject, balance, ledger, state, take_log};

async fn take(store: &EventStore, subject: &Subject) -> SnapshotOutcome {
    store.take_snapshot(subject.model(), &subject.key, now()).await.unwrap()
}

async fn snapshot(table: &TestTable, subject: &Subject) -> Item {
    table.row(&subject.key, keys::SNAPSHOT).await.unwrap()
}

/// A text that does not compress to less than three quarters.
fn noise(bytes: usize) -> String {
    let mut random = fastrand::Rng::with_seed(7);
    std::iter::repeat_with(|| random.alphanumeric()).take(bytes).collect()
}

#[tokio::test]
async fn snapshot_contains_the_state_and_its_version() {
    let table = TestTable::new().await;
    let store = table.store();
    let todo = Subject::shipped("todo", "1");
    todo.command(&store, "CreateTodo", json!({"title": "A", "message": "B"})).await;
    todo.command(&store, "UpdateTodo", json!({"title": "A", "message": "C"})).await;
    let taken_at = "2026-03-04T05:06:07.089Z".parse().unwrap();
    let outcome = store.take_snapshot(todo.model(), &todo.key, taken_at).await.unwrap();
    assert_eq!(outcome, SnapshotOutcome::Taken { version: 2 });
    let mut row = notation(&snapshot(&table, &todo).await);
    expect_checksum(&mut row);
    assert_eq!(
        row,
        json!({
            "pk": {"S": "AGGREGATE#todo#1"},
            "sk": {"S": "#SNAPSHOT"},
            "state": {"S": r#"{"id":"1","title":"A","message":"C"}"#},
            "lastSeqNum": {"N": "2"},
            "messageSeq": {"N": "2"},
            "stateVersion": {"N": "2"},
            "takenAt": {"S": "2026-03-04T05:06:07.089Z"},
        })
    );
    assert_eq!(table.rows(&todo.key, keys::KEPT_SNAPSHOT_PREFIX).await, []);
}

#[tokio::test]
async fn a_snapshot_that_is_not_newer_changes_nothing() {
    let table = TestTable::new().await;
    let account = ledger(&table.store(), "1", 5).await;
    let early = table.store();
    assert_eq!(take(&early, &account).await, SnapshotOutcome::Taken { version: 5 });
    let stored = snapshot(&table, &account).await;
    assert_eq!(take(&early, &account).await, SnapshotOutcome::NotNewer);
    assert_eq!(take(&table.store(), &account).await, SnapshotOutcome::NotNewer);
    assert_eq!(snapshot(&table, &account).await, stored);
    ledger(&early, "1", 10).await;
    assert_eq!(take(&early, &account).await, SnapshotOutcome::Taken { version: 10 });
}

#[tokio::test]
async fn snapshot_of_missing_events_is_ignored_and_replaced() {
    let table = TestTable::new().await;
    let store = table.store();
    let account = ledger(&store, "1", 5).await;
    take(&store, &account).await;
    for state_version in ["1", "7"] {
        let ahead =
            [("lastSeqNum", AttributeValue::N("9".into())), ("stateVersion", AttributeValue::N(state_version.into()))];
        table.tamper(&account.key, keys::SNAPSHOT, ahead).await;
        let loaded = account.load(&table.store()).await;
        assert_eq!((loaded.version(), &state(&loaded)["balance"]), (5, &json!(balance(5))));
        assert_eq!(take(&table.store(), &account).await, SnapshotOutcome::Taken { version: 5 });
        let replaced = snapshot(&table, &account).await;
        assert_eq!((number(&replaced, "lastSeqNum"), number(&replaced, "stateVersion")), (5, 1));
    }
}

#[tokio::test]
async fn snapshot_taken_between_the_reads_of_a_load_is_used() {
    let table = TestTable::new().await;
    let account = ledger(&table.store(), "1", 5).await;
    // The query runs before the last three events are visible.
    let mut hidden = Vec::new();
    ledger(&table.store(), "1", 8).await;
    take(&table.store(), &account).await;
    for seq_num in 6..=8 {
        hidden.push(table.row(&account.key, &keys::event_sk(seq_num)).await.unwrap());
        table.delete(&account.key, &keys::event_sk(seq_num)).await;
    }
    let store = table.store();
    table.proxy.take_calls();
    let mut load = pin!(account.load(&store));
    table.proxy.hold(&mut load, |calls| calls.len() == 2).await;
    for row in hidden {
        table.put(row).await;
    }
    let loaded = load.await;
    assert_eq!((loaded.version(), &state(&loaded)["balance"]), (8, &json!(balance(8))));
    assert_eq!(table.operations(), ["Query"], "only the later events are read again");
}

#[tokio::test]
async fn aggregate_without_events_needs_no_snapshot() {
    let table = TestTable::new().await;
    let account = Subject::shipped("account", "nobody");
    assert_eq!(take(&table.store(), &account).await, SnapshotOutcome::NotNeeded);
    assert_eq!(table.rows(&account.key, "").await, []);
}

#[tokio::test]
async fn a_snapshot_of_another_state_version_is_ignored_and_overwritten() {
    let table = TestTable::new().await;
    let (older, newer) = (Subject::of::<Notebook<1>>("1"), Subject::of::<Notebook<2>>("1"));
    let lines = ["A", "!B", "C"];
    older.command(&table.store(), "Start", json!({ "lines": lines })).await;
    assert_eq!(take(&table.store(), &older).await, SnapshotOutcome::Taken { version: 3 });
    // The state in the snapshot is changed, to show that only the older release uses it.
    let other = [("state", AttributeValue::S(r#"{"lines":["other"]}"#.into()))];
    table.tamper(&older.key, keys::SNAPSHOT, other).await;
    assert_eq!(state(&older.load(&table.store()).await)["lines"], json!(["other"]));

    let loaded = newer.load(&table.store()).await;
    assert_eq!((loaded.version(), loaded.folded.message_seq()), (3, 1));
    assert_eq!(state(&loaded)["lines"], json!(lines));

    // It is replaced even at the same version, by the newer release and by the older one.
    assert_eq!(take(&table.store(), &newer).await, SnapshotOutcome::Taken { version: 3 });
    assert_eq!(number(&snapshot(&table, &newer).await, "stateVersion"), 2);
    assert_eq!(state(&newer.load(&table.store()).await)["lines"], json!(lines));
    assert_eq!(take(&table.store(), &older).await, SnapshotOutcome::Taken { version: 3 });
    assert_eq!(number(&snapshot(&table, &newer).await, "stateVersion"), 1);
}

#[tokio::test]
async fn a_snapshot_that_cannot_be_read_is_ignored() {
    let table = TestTable::new().await;
    let every_fifth = StoreSettings { snapshot_every: 5, ..settings() };
    let store = table.store_with(every_fifth.clone());
    let account = ledger(&store, "1", 12).await;
    take(&store, &account).await;
    let good = snapshot(&table, &account).await;

    let text = |value: &str| AttributeValue::S(value.to_owned());
    let packed = |content: &[u8]| {
        let mut packer = GzEncoder::new(Vec::new(), Compression::default());
        packer.write_all(content).unwrap();
        packer.finish().unwrap()
    };
    let bytes = |bytes: Vec<u8>| AttributeValue::B(Blob::new(bytes));
    let torn = packed(good["state"].as_s().unwrap().as_bytes());
    for (attribute, value) in [
        ("state", text("")),
        ("state", text("no JSON")),
        ("state", text("{}")),
        ("state", text(r#"{"id":"1","ownerFirst":"","ownerLast":"","balance":"77","minimumBalance":-1000}"#)),
        ("state", AttributeValue::N("77".into())),
        ("state", AttributeValue::Null(true)),
        ("state", bytes(b"no gzip".to_vec())),
        ("state", bytes(Vec::new())),
        ("state", bytes(torn[..torn.len() / 2].to_vec())),
        ("state", bytes(packed(b"no JSON"))),
        ("state", bytes(packed(&[0xff, 0xfe]))),
        ("lastSeqNum", text("12")),
        ("lastSeqNum", AttributeValue::N("-1".into())),
        ("messageSeq", AttributeValue::Bool(true)),
        ("stateVersion", text("1")),
        ("takenAt", AttributeValue::N("1".into())),
    ] {
        table.tamper(&account.key, keys::SNAPSHOT, [(attribute, value.clone())]).await;
        let cold = table.store_with(every_fifth.clone());
        let loaded = account.load(&cold).await;
        assert_eq!((loaded.version(), &state(&loaded)["balance"]), (12, &json!(balance(12))), "{attribute} {value:?}");
        assert_eq!(state(&account.load_at(&cold, 12).await)["balance"], balance(12), "{attribute} {value:?}");
        table.put(good.clone()).await;
    }
}

/// The load returns the right state, only more slowly, so the log is the only sign for the operator.
#[tokio::test]
async fn ignored_snapshot_logs_a_warning_with_its_aggregate() {
    let table = TestTable::new().await;
    let account = ledger(&table.store(), "1", 5).await;
    take(&table.store(), &account).await;
    let good = snapshot(&table, &account).await;
    take_log();
    account.load(&table.store()).await;
    assert_eq!(take_log(), [json!(null); 0], "a valid snapshot is used without a log line");

    let number = |value: &str| AttributeValue::N(value.to_owned());
    for (attribute, value, message, fields) in [
        ("state", AttributeValue::S("no JSON".into()), "ignoring a snapshot that cannot be read", json!({})),
        (
            "stateVersion",
            number("7"),
            "ignoring a snapshot of another state version",
            json!({"version": 5, "state_version": 7}),
        ),
        ("lastSeqNum", number("9"), "ignoring a snapshot that is ahead of the events", json!({"version": 9})),
    ] {
        table.put(good.clone()).await;
        table.tamper(&account.key, keys::SNAPSHOT, [(attribute, value)]).await;
        take_log();
        assert_eq!(account.load(&table.store()).await.version(), 5);
        let lines = take_log();
        let [line] = lines.as_slice() else { panic!("{lines:#?}") };
        assert_eq!((&line["level"], &line["message"]), (&json!("WARN"), &json!(message)));
        assert_eq!(line["aggregate"], "account/1");
        for (name, value) in fields.as_object().unwrap() {
            assert_eq!(&line[name], value, "{message}");
        }
        assert_eq!(line["error"].is_string(), attribute == "state", "why it cannot be read");
    }
}

#[tokio::test]
async fn a_snapshot_that_cannot_be_read_is_replaced_by_the_next() {
    let table = TestTable::new().await;
    let store = table.store();
    let account = ledger(&store, "1", 5).await;
    take(&store, &account).await;
    let text_of = |value: &str| AttributeValue::S(value.to_owned());
    for (version, bad) in [(6, ("state", text_of("no JSON"))), (7, ("lastSeqNum", text_of("99")))] {
        table.tamper(&account.key, keys::SNAPSHOT, [bad]).await;
        ledger(&store, "1", version).await;
        assert_eq!(take(&table.store(), &account).await, SnapshotOutcome::Taken { version });
        let state = snapshot(&table, &account).await;
        assert!(text(&state, "state").contains(&format!(r#""balance":{}"#, balance(version))));
    }
}

#[tokio::test]
async fn unreadable_snapshot_is_replaced_even_without_new_events() {
    let table = TestTable::new().await;
    let account = ledger(&table.store(), "1", 5).await;
    take(&table.store(), &account).await;
    let good = snapshot(&table, &account).await;
    let text_of = |value: &str| AttributeValue::S(value.to_owned());
    for (attribute, value) in [
        ("state", text_of("no JSON")),
        ("lastSeqNum", text_of("99")),
        ("stateVersion", text_of("1")),
        ("stateVersion", AttributeValue::N("7".into())),
        ("takenAt", AttributeValue::N("1".into())),
    ] {
        table.tamper(&account.key, keys::SNAPSHOT, [(attribute, value)]).await;
        assert_eq!(take(&table.store(), &account).await, SnapshotOutcome::Taken { version: 5 }, "{attribute}");
        let taken = snapshot(&table, &account).await;
        assert_eq!((&taken["state"], &taken["lastSeqNum"]), (&good["state"], &good["lastSeqNum"]));
    }
    assert_eq!(table.rows(&account.key, keys::KEPT_SNAPSHOT_PREFIX).await, [], "nobody has a use for these");
}

#[tokio::test]
async fn wrong_snapshot_is_corrected_by_a_rebuild() {
    let table = TestTable::new().await;
    let account = ledger(&table.store(), "1", 5).await;
    take(&table.store(), &account).await;
    let wrong = r#"{"id":"1","ownerFirst":"","ownerLast":"","balance":77,"minimumBalance":-1000}"#;
    table.tamper(&account.key, keys::SNAPSHOT, [("state", AttributeValue::S(wrong.into()))]).await;
    assert_eq!(state(&account.load(&table.store()).await)["balance"], 77);
    let cold = || table.store();
    assert_eq!(take(&cold(), &account).await, SnapshotOutcome::NotNewer);

    let outcome = cold().rebuild_snapshot(account.model(), &account.key, now()).await.unwrap();
    assert_eq!(outcome, SnapshotOutcome::Taken { version: 5 });
    assert_eq!(state(&account.load(&table.store()).await)["balance"], balance(5));
    assert_eq!(state(&account.load_at(&table.store(), 5).await)["balance"], balance(5));

    let nobody = Subject::shipped("account", "nobody");
    let outcome = cold().rebuild_snapshot(nobody.model(), &nobody.key, now()).await.unwrap();
    assert_eq!(outcome, SnapshotOutcome::NotNeeded);
}

#[tokio::test]
async fn a_large_state_is_stored_compressed_and_read_back() {
    let table = TestTable::new().await;
    let notebook = Subject::of::<Notebook>("1");
    let line = |letter: &str| letter.repeat(300 * 1024);
    for (command, letter) in [("Start", "A"), ("Write", "B"), ("Write", "C")] {
        notebook.command(&table.store(), command, json!({ "lines": [line(letter)] })).await;
    }
    let store = table.store();
    assert_eq!(take(&store, &notebook).await, SnapshotOutcome::Taken { version: 3 });
    let stored = snapshot(&table, &notebook).await;
    assert!(stored["state"].is_b());
    assert!(item_size(&stored) < 8 * 1024, "900 KB of three letters are next to nothing when compressed");

    table.proxy.take_calls();
    let cold = table.store();
    let expected = json!([line("A"), line("B"), line("C")]);
    assert_eq!(state(&notebook.load(&cold).await)["lines"], expected);
    assert_eq!(table.operations(), ["GetItem", "Query"]);
    // The state that was read can be decided on.
    notebook.command(&cold, "Write", json!({"lines": ["D"]})).await;
    assert_eq!(state(&notebook.load(&table.store()).await)["lines"][3], "D");
}

#[tokio::test]
async fn small_state_is_stored_uncompressed() {
    let table = TestTable::new().await;
    // Texts above 8 KB are compressed.
    for (bytes, compressed) in [(8_100, false), (8_300, true)] {
        let notebook = Subject::of::<Notebook>(&bytes.to_string());
        notebook.command(&table.store(), "Start", json!({"lines": ["A".repeat(bytes)]})).await;
        take(&table.store(), &notebook).await;
        assert_eq!(snapshot(&table, &notebook).await["state"].is_b(), compressed);
        assert_eq!(notebook.load(&table.store()).await.version(), 1);
    }
}

#[tokio::test]
async fn aggregate_with_a_state_too_large_for_a_snapshot_works_without_one() {
    let table = TestTable::new().await;
    let store = table.store();
    let notebook = Subject::of::<Notebook>("1");
    let start = notebook.command(&store, "Start", json!({"lines": [noise(300 * 1024)]})).await;
    assert_eq!(take(&store, &notebook).await, SnapshotOutcome::Taken { version: 1 });
    let small = snapshot(&table, &notebook).await;
    let line = noise(399 * 1024).split_off(99 * 1024);
    notebook.command(&store, "Write", json!({"lines": [line]})).await;
    table.proxy.take_calls();
    let outcome = take(&store, &notebook).await;
    assert!(matches!(outcome, SnapshotOutcome::TooLarge { bytes } if bytes > MAX_ITEM), "{outcome:?}");
    assert_eq!(table.operations(), ["Query"], "nothing is written");
    assert_eq!(snapshot(&table, &notebook).await, small);

    for store in [&store, &table.store()] {
        let version = notebook.load(store).await.version();
        let loaded = notebook.command(store, "Write", json!({"lines": ["!"]})).await;
        assert_eq!(loaded.version(), version + 1);
    }
    let rebuilt = notebook.rebuild(&table.store()).await;
    assert_eq!((rebuilt.version(), rebuilt.folded.message_seq()), (4, 2));
    assert_eq!(state(&rebuilt)["lines"][0], state(&start)["lines"][0]);
}

#[tokio::test]
async fn snapshot_size_limit_includes_the_attributes_of_a_kept_snapshot() {
    let table = TestTable::new().await;
    let notebook = Subject::of::<Notebook>("1");
    let noise = noise(600 * 1024);
    let (first, second) = noise.split_at(300 * 1024);
    let start = async |length: usize| {
        for row in table.rows(&notebook.key, "").await {
            table.delete(&notebook.key, text(&row, "sk")).await;
        }
        let store = table.store();
        notebook.command(&store, "Start", json!({ "lines": [first] })).await;
        notebook.command(&store, "Write", json!({"lines": [second[..length]]})).await;
        take(&table.store(), &notebook).await
    };
    // Finds the largest state that fits.
    let (mut fits, mut too_large) = (0, second.len());
    assert!(matches!(start(too_large).await, SnapshotOutcome::TooLarge { .. }));
    while too_large - fits > 1 {
        let length = fits.midpoint(too_large);
        match start(length).await {
            SnapshotOutcome::Taken { .. } => fits = length,
            _ => too_large = length,
        }
    }
    start(fits).await;
    // The newer release keeps it as a snapshot of another state version.
    let newer = Subject::of::<Notebook<2>>("1");
    take(&table.store(), &newer).await;
    let kept = table.row(&notebook.key, &keys::kept_snapshot_sk(2)).await.unwrap();
    assert!(kept.contains_key("ttl") && item_size(&kept) <= MAX_ITEM);
    assert!(item_size(&kept) > MAX_ITEM - 8, "it was the largest");
}

#[tokio::test]
async fn an_aggregate_with_full_history_never_uses_a_snapshot() {
    let table = TestTable::new().await;
    let plain = Subject::of::<Notebook>("1");
    let diary = Subject::of::<Notebook<1, true>>("1");
    let every_second = || table.store_with(StoreSettings { snapshot_every: 2, ..settings() });
    plain.command(&every_second(), "Start", json!({"lines": ["A", "B", "C"]})).await;
    take(&every_second(), &plain).await;
    let wrong = AttributeValue::S(r#"{"lines":["lie"]}"#.into());
    table.tamper(&plain.key, keys::SNAPSHOT, [("state", wrong)]).await;

    table.proxy.take_calls();
    let store = every_second();
    assert_eq!(take(&store, &diary).await, SnapshotOutcome::NotNeeded);
    assert_eq!(table.operations(), [""; 0]);
    assert_eq!(state(&diary.load(&store).await)["lines"], json!(["A", "B", "C"]));
    assert_eq!(state(&diary.load_at(&store, 3).await)["lines"], json!(["A", "B", "C"]));
    let calls = table.proxy.take_calls();
    assert!(calls.iter().all(|call| call.operation == "Query"), "{calls:?}");
    // Its rules receive every event, with a warm cache and with a cold one.
    for (store, history) in [(&store, "3"), (&table.store(), "4")] {
        let after = diary.command(store, "Count", json!({})).await;
        assert_eq!(state(&after)["lines"].as_array().unwrap().last().unwrap(), history);
    }
}
