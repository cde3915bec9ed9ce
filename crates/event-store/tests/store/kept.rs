//! Kept snapshots: their number, and loads of past versions from the nearest of them.

use std::pin::pin;

use aws_sdk_dynamodb::types::AttributeValue;
use daybook_event_store::{EventStore, SnapshotOutcome, StoreSettings};
use daybook_table::keys;
use daybook_test_support::clock::now;
use daybook_test_support::fault_proxy::InjectedFault;
use daybook_test_support::notebook::Notebook;
use daybook_test_support::row::{number, sealed};
use daybook_test_support::table::{TestTable, settings};
use serde_json::json;

use crate::support::{Subject, balance, ledger, state};

async fn take(store: &EventStore, subject: &Subject) -> SnapshotOutcome {
    store.take_snapshot(subject.model(), &subject.key, now()).await.unwrap()
}

fn keeping(table: &TestTable, snapshot_keep: usize) -> EventStore {
    table.store_with(StoreSettings { snapshot_keep, ..settings() })
}

/// The versions of the kept snapshots that stay, and of those that have a TTL.
async fn kept(table: &TestTable, account: &Subject) -> (Vec<u64>, Vec<u64>) {
    let rows = table.rows(&account.key, keys::KEPT_SNAPSHOT_PREFIX).await;
    let (over, staying): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.contains_key("ttl"));
    let versions = |rows: Vec<_>| rows.iter().map(|row| number(row, "lastSeqNum")).collect();
    (versions(staying), versions(over))
}

/// An account of which a snapshot was taken at each of these versions.
async fn account_with(table: &TestTable, snapshot_keep: usize, versions: &[u64]) -> Subject {
    let store = keeping(table, snapshot_keep);
    for version in versions {
        let account = ledger(&store, "1", *version).await;
        assert_eq!(take(&store, &account).await, SnapshotOutcome::Taken { version: *version });
    }
    Subject::shipped("account", "1")
}

#[tokio::test]
async fn kept_snapshots_beyond_the_latest_few_expire() {
    let table = TestTable::new().await;
    let store = table.store_with(StoreSettings { snapshot_keep: 2, ..settings() });
    let mut account = Subject::shipped("account", "1");
    let mut taken_at = Vec::new();
    for version in [10, 20, 30, 40, 50] {
        account = ledger(&store, "1", version).await;
        let at = now();
        taken_at.push(at);
        store.take_snapshot(account.model(), &account.key, at).await.unwrap();
    }
    let kept = table.rows(&account.key, keys::KEPT_SNAPSHOT_PREFIX).await;
    let versions: Vec<_> = kept.iter().map(|row| number(row, "lastSeqNum")).collect();
    assert_eq!(versions, [10, 20, 30, 40, 50]);
    // Two stay beside the copy of the latest; 10 expired when 40 was taken, 20 when 50 was.
    let expiring: Vec<_> = kept.iter().filter(|row| row.contains_key("ttl")).map(|row| number(row, "ttl")).collect();
    let at = |index: usize| u64::try_from(taken_at[index].as_second()).unwrap();
    assert_eq!(expiring, [at(3), at(4)]);
    assert!(kept[..2].iter().all(|row| row.contains_key("ttl")));
    assert!(!table.row(&account.key, keys::SNAPSHOT).await.unwrap().contains_key("ttl"));
    // A repeated request expires nothing more.
    assert_eq!(take(&store, &account).await, SnapshotOutcome::NotNewer);
    let kept = table.rows(&account.key, keys::KEPT_SNAPSHOT_PREFIX).await;
    assert_eq!(kept.iter().filter(|row| row.contains_key("ttl")).count(), 2);
}

#[tokio::test]
async fn past_version_is_read_from_the_nearest_kept_snapshot() {
    let table = TestTable::new().await;
    let store = table.store_with(StoreSettings { snapshot_keep: 5, ..settings() });
    let mut account = Subject::shipped("account", "1");
    for version in [200, 400, 600] {
        account = ledger(&store, "1", version).await;
        take(&store, &account).await;
    }
    ledger(&store, "1", 650).await;
    for (version, first) in [(201, 201), (450, 401), (650, 601)] {
        table.proxy.take_calls();
        let at = account.load_at(&store, version).await;
        assert_eq!((at.version(), &state(&at)["balance"]), (version, &json!(balance(version))));
        let calls = table.proxy.take_calls();
        assert_eq!(calls.len(), 2, "the snapshot, and the events after it");
        assert_eq!(calls[1].request["ExpressionAttributeValues"][":first"]["S"], keys::event_sk(first));
    }
    // A version before the first kept snapshot is read from the events alone.
    assert_eq!(state(&account.load_at(&store, 199).await)["balance"], balance(199));
    // For a version that has a snapshot, no event is folded; one read checks that its event exists.
    table.proxy.take_calls();
    assert_eq!(account.load_at(&store, 400).await.version(), 400);
    let calls = table.proxy.take_calls();
    assert_eq!(calls.len(), 2, "the snapshot, and its event");
    assert_eq!(calls[1].request["Key"]["sk"]["S"], keys::event_sk(400));
}

#[tokio::test]
async fn past_version_is_read_from_the_latest_snapshot_when_it_is_nearer_than_a_kept_one() {
    let table = TestTable::new().await;
    let account = account_with(&table, 1, &[100]).await;
    let store = table.store();
    ledger(&store, "1", 400).await;
    // This store keeps no snapshots; the kept one waits to be deleted.
    take(&store, &account).await;
    ledger(&store, "1", 450).await;
    for (version, first) in [(150, 101), (399, 101), (420, 401)] {
        table.proxy.take_calls();
        let at = account.load_at(&store, version).await;
        assert_eq!((at.version(), &state(&at)["balance"]), (version, &json!(balance(version))));
        let last = table.proxy.take_calls().pop().unwrap();
        assert_eq!(last.request["ExpressionAttributeValues"][":first"]["S"], keys::event_sk(first));
    }
}

#[tokio::test]
async fn past_version_is_not_read_from_a_snapshot_of_missing_events() {
    let table = TestTable::new().await;
    ledger(&table.store(), "1", 30).await;
    let account = account_with(&table, 1, &[40]).await;
    for event in 31..=40 {
        table.delete(&account.key, &keys::event_sk(event)).await;
    }
    let at = account.load_at(&table.store(), 40).await;
    assert_eq!((at.version(), &state(&at)["balance"]), (30, &json!(balance(30))));
}

#[tokio::test]
async fn each_state_version_keeps_its_own_snapshots() {
    const DAY: u64 = 24 * 60 * 60;
    for keep in [1, 2] {
        let table = TestTable::new().await;
        let store = || table.store_with(StoreSettings { snapshot_keep: keep, ..settings() });
        let (older, newer) = (Subject::of::<Notebook<1>>("1"), Subject::of::<Notebook<2>>("1"));
        older.command(&store(), "Start", json!({"lines": ["1"]})).await;
        take(&store(), &older).await;
        for release in [&older, &newer, &newer, &newer, &newer] {
            release.command(&store(), "Write", json!({"lines": ["more"]})).await;
            take(&store(), release).await;
        }
        let rows = table.rows(&older.key, keys::KEPT_SNAPSHOT_PREFIX).await;
        let of = |state_version| rows.iter().filter(move |row| number(row, "stateVersion") == state_version);
        let staying = of(2).filter(|row| !row.contains_key("ttl")).map(|row| number(row, "lastSeqNum"));
        assert_eq!(staying.collect::<Vec<_>>(), (6 - keep as u64..=6).collect::<Vec<_>>());
        // The older release could be rolled back to for a week, and finds its own.
        let today = u64::try_from(now().as_second()).unwrap();
        assert_eq!(of(1).count(), 2);
        assert!(of(1).all(|row| number(row, "ttl") >= today + 7 * DAY - 60), "{rows:?}");
        table.proxy.take_calls();
        assert_eq!(older.load(&store()).await.version(), 6);
        let reads = table.proxy.take_calls();
        assert!(reads.iter().all(|call| call.request["ExpressionAttributeValues"][":first"]["S"] != keys::event_sk(2)));
    }
}

#[tokio::test]
async fn new_release_does_not_replace_a_kept_snapshot_of_the_same_event() {
    for keep in [0, 1] {
        let table = TestTable::new().await;
        let (older, newer) = (Subject::of::<Notebook<1>>("1"), Subject::of::<Notebook<2>>("1"));
        older.command(&table.store(), "Start", json!({"lines": ["1"]})).await;
        take(&table.store_with(StoreSettings { snapshot_keep: keep, ..settings() }), &older).await;
        // The latest snapshot is of the older release, so it is copied to the kept ones. A repeated call has no effect.
        assert_eq!(take(&keeping(&table, 1), &newer).await, SnapshotOutcome::Taken { version: 1 });
        assert_eq!(take(&keeping(&table, 1), &newer).await, SnapshotOutcome::NotNewer);
        let latest = table.row(&older.key, keys::SNAPSHOT).await.unwrap();
        let kept = table.row(&older.key, &keys::kept_snapshot_sk(1)).await.unwrap();
        assert_eq!((number(&latest, "stateVersion"), number(&kept, "stateVersion")), (2, 1));
        assert!(kept.contains_key("ttl"));
    }
}

#[tokio::test]
async fn number_of_kept_snapshots_follows_a_changed_setting() {
    for (keep, staying) in
        [(1, vec![50, 60]), (0, vec![]), (3, vec![30, 40, 50, 60]), (9, vec![10, 20, 30, 40, 50, 60])]
    {
        let table = TestTable::new().await;
        let account = account_with(&table, 9, &[10, 20, 30, 40, 50]).await;
        account_with(&table, keep, &[60]).await;
        let (stay, over) = kept(&table, &account).await;
        assert_eq!(stay, staying, "of {keep}");
        let gone: Vec<_> = [10, 20, 30, 40, 50].into_iter().filter(|version| !staying.contains(version)).collect();
        assert_eq!(over, gone, "of {keep}");
    }
}

#[tokio::test]
async fn retention_reads_only_unexpired_snapshots_however_many_wait_to_be_deleted() {
    let table = TestTable::new().await;
    let versions: Vec<_> = (1..=40).map(|tens| tens * 10).collect();
    let account = account_with(&table, 2, &versions).await;
    table.proxy.take_calls();
    account_with(&table, 2, &[410]).await;
    let calls = table.proxy.take_calls();
    let listing = calls.iter().filter(|call| call.request["ProjectionExpression"].is_string());
    let limits: Vec<_> = listing.map(|call| call.request["Limit"].clone()).collect();
    assert_eq!(limits, [5], "one page: those that stay, the one that goes, and one that has gone");
    assert_eq!(calls.iter().filter(|call| call.operation == "UpdateItem").count(), 1);
    assert_eq!(kept(&table, &account).await.0, [390, 400, 410]);

    // If none is kept, one query finds that out.
    account_with(&table, 0, &[420]).await;
    table.proxy.take_calls();
    let none = keeping(&table, 0);
    ledger(&none, "1", 430).await;
    table.proxy.take_calls();
    take(&none, &account).await;
    assert_eq!(table.operations(), ["PutItem", "Query", "Query"], "the events, the snapshot, and whether one is kept");
}

#[tokio::test]
async fn crash_during_retention_leaves_no_snapshot_unexpired() {
    let table = TestTable::new().await;
    let account = account_with(&table, 9, &[10, 20, 30, 40]).await;
    let store = keeping(&table, 0);
    ledger(&store, "1", 50).await;
    let mut run = pin!(store.take_snapshot(account.model(), &account.key, now()));
    table.proxy.hold(&mut run, |calls| calls.iter().filter(|call| call.operation == "UpdateItem").count() == 2).await;
    table.proxy.fail_next("UpdateItem", InjectedFault::Refuse { status: 400, code: "AccessDeniedException" });
    run.await.unwrap_err();
    assert_eq!(kept(&table, &account).await, (vec![30, 40], vec![10, 20]), "the oldest first");

    assert_eq!(take(&keeping(&table, 0), &account).await, SnapshotOutcome::NotNewer);
    assert_eq!(kept(&table, &account).await, (vec![], vec![10, 20, 30, 40]));
}

#[tokio::test]
async fn kept_snapshot_that_is_taken_late_expires_at_once() {
    let table = TestTable::new().await;
    let account = ledger(&table.store(), "1", 10).await;
    let slow = keeping(&table, 1);
    table.proxy.take_calls();
    let mut run = pin!(slow.take_snapshot(account.model(), &account.key, now()));
    // The snapshot, the latest events, and those before them.
    table.proxy.hold(&mut run, |calls| calls.len() == 3).await;
    let fast = EventStore::new(
        &daybook_function_runtime::aws_config_at(table.engine.url()),
        StoreSettings { snapshot_keep: 1, ..settings() },
    );
    for version in [20, 30, 40] {
        ledger(&fast, "1", version).await;
        take(&fast, &account).await;
    }
    assert_eq!(kept(&table, &account).await, (vec![30, 40], vec![20]));

    assert_eq!(run.await.unwrap(), SnapshotOutcome::NotNewer);
    assert_eq!(kept(&table, &account).await, (vec![30, 40], vec![10, 20]));
}

#[tokio::test]
async fn past_version_is_read_from_the_latest_snapshot_when_none_is_kept() {
    let table = TestTable::new().await;
    let account = account_with(&table, 0, &[200]).await;
    ledger(&table.store(), "1", 300).await;
    for (version, first) in [(199, 1), (201, 201), (300, 201)] {
        table.proxy.take_calls();
        let at = account.load_at(&table.store(), version).await;
        assert_eq!((at.version(), &state(&at)["balance"]), (version, &json!(balance(version))));
        let calls = table.proxy.take_calls();
        let operations: Vec<_> = calls.iter().map(|call| call.operation.as_str()).collect();
        assert_eq!(operations, ["Query", "GetItem", "Query"]);
        assert_eq!(calls[2].request["ExpressionAttributeValues"][":first"]["S"], keys::event_sk(first));
    }
    assert_eq!(account.load_at(&table.store(), 200).await.version(), 200);
}

#[tokio::test]
async fn unusable_kept_snapshot_does_not_hide_an_older_one() {
    let table = TestTable::new().await;
    let account = account_with(&table, 9, &[100, 200, 300, 400]).await;
    let unusable = [
        ("state", AttributeValue::S("no JSON".into())),
        ("stateVersion", AttributeValue::N("7".into())),
        ("stateVersion", AttributeValue::S("1".into())),
        ("lastSeqNum", AttributeValue::N("150".into())),
        ("lastSeqNum", AttributeValue::N("450".into())),
    ];
    let good = table.row(&account.key, &keys::kept_snapshot_sk(300)).await.unwrap();
    for (attribute, value) in unusable {
        for sk in [keys::kept_snapshot_sk(300), keys::kept_snapshot_sk(200)] {
            table.tamper(&account.key, &sk, [(attribute, value.clone())]).await;
        }
        table.proxy.take_calls();
        let at = account.load_at(&table.store(), 350).await;
        assert_eq!((at.version(), &state(&at)["balance"]), (350, &json!(balance(350))), "{attribute} {value:?}");
        let calls = table.proxy.take_calls();
        assert_eq!(calls.len(), 4, "the newest kept one, the others in one page, the newest of all, the events");
        assert_eq!(calls[3].request["ExpressionAttributeValues"][":first"]["S"], keys::event_sk(101));
        let mut again = good.clone();
        table.put(again.clone()).await;
        again.insert("sk".into(), AttributeValue::S(keys::kept_snapshot_sk(200)));
        again.insert("lastSeqNum".into(), AttributeValue::N("200".into()));
        table.put(again).await;
    }
    // An unreadable latest snapshot does not hide it either.
    table.tamper(&account.key, keys::SNAPSHOT, [("state", AttributeValue::S("no JSON".into()))]).await;
    let at = account.load(&table.store()).await;
    assert_eq!((at.version(), &state(&at)["balance"]), (400, &json!(balance(400))));
}

#[tokio::test]
async fn rebuild_corrects_kept_snapshots_and_deletes_uncorrectable_ones() {
    let table = TestTable::new().await;
    let account = account_with(&table, 9, &[10, 20, 30, 40, 50, 60]).await;
    for event in 51..=60 {
        table.delete(&account.key, &keys::event_sk(event)).await;
    }
    let row = async |version| table.row(&account.key, &keys::kept_snapshot_sk(version)).await;
    let good = [row(10).await, row(20).await, row(30).await, row(40).await, row(50).await];
    let wrong = r#"{"id":"1","ownerFirst":"","ownerLast":"","balance":77,"minimumBalance":-1000}"#;
    let text = |text: &str| AttributeValue::S(text.to_owned());
    let number_of = |number: &str| AttributeValue::N(number.to_owned());
    for (version, name, value) in
        [(20, "state", text(wrong)), (30, "state", text("no JSON")), (40, "messageSeq", number_of("77"))]
    {
        table.tamper(&account.key, &keys::kept_snapshot_sk(version), [(name, value)]).await;
    }
    let mut of_other_release = row(50).await.unwrap();
    of_other_release.insert("stateVersion".to_owned(), number_of("7"));
    table.put(sealed(of_other_release)).await;
    table.tamper(&account.key, &keys::kept_snapshot_sk(40), [("ttl", number_of("4000000000"))]).await;
    assert_eq!(state(&account.load_at(&table.store(), 25).await)["balance"], json!(77 + balance(25) - balance(20)));

    let outcome = keeping(&table, 9).rebuild_snapshot(account.model(), &account.key, now()).await.unwrap();
    assert_eq!(outcome, SnapshotOutcome::Taken { version: 50 });
    assert_eq!(row(10).await, good[0], "it was right");
    let mended = row(20).await.unwrap();
    assert_eq!((row(30).await, row(60).await), (None, None));
    assert_eq!(number(&row(40).await.unwrap(), "ttl"), 4_000_000_000);
    assert_eq!(number(&row(50).await.unwrap(), "stateVersion"), 7, "another release's is left alone");
    for version in [15, 25, 35, 45] {
        assert_eq!(state(&account.load_at(&table.store(), version).await)["balance"], balance(version));
    }
    // The latest snapshot is again the state after the last event that exists.
    let latest = table.row(&account.key, keys::SNAPSHOT).await.unwrap();
    for (found, expected) in [(mended, &good[1]), (row(40).await.unwrap(), &good[3]), (latest, &good[4])] {
        let expected = expected.as_ref().unwrap();
        assert_eq!((&found["state"], &found["messageSeq"]), (&expected["state"], &expected["messageSeq"]));
    }
}
