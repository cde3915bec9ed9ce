//! Loads of past versions, and kept snapshots: those of another release.

use aws_sdk_dynamodb::types::AttributeValue;
use daybook_event_store::{EventStore, SnapshotOutcome, StoreError};
use daybook_table::keys;
use daybook_test_support::clock::now;
use daybook_test_support::notebook::Notebook;
use daybook_test_support::row::{Item, number, sealed};
use daybook_test_support::table::TestTable;
use serde_json::json;

use crate::support::{Subject, balance, ledger, state};

async fn take(store: &EventStore, subject: &Subject) -> SnapshotOutcome {
    store.take_snapshot(subject.model(), &subject.key, now()).await.unwrap()
}

#[tokio::test]
async fn past_version_is_read_from_the_snapshot_unless_it_is_beyond() {
    let table = TestTable::new().await;
    let account = ledger(&table.store(), "1", 200).await;
    take(&table.store(), &account).await;
    ledger(&table.store(), "1", 300).await;
    for (version, first) in [(199, 1), (201, 201), (300, 201)] {
        table.proxy.take_calls();
        let at = account.load_at(&table.store(), version).await;
        assert_eq!((at.version(), &state(&at)["balance"]), (version, &json!(balance(version))));
        let calls = table.proxy.take_calls();
        let operations: Vec<_> = calls.iter().map(|call| call.operation.as_str()).collect();
        assert_eq!(operations, ["GetItem", "Query"]);
        assert_eq!(calls[1].request["ExpressionAttributeValues"][":first"]["S"], keys::event_sk(first));
    }
    // For a version that has a snapshot, no event is folded; one read checks that its event exists.
    table.proxy.take_calls();
    assert_eq!(account.load_at(&table.store(), 200).await.version(), 200);
    let calls = table.proxy.take_calls();
    assert_eq!(calls.len(), 2, "the snapshot, and its event");
    assert_eq!(calls[1].request["Key"]["sk"]["S"], keys::event_sk(200));
}

#[tokio::test]
async fn past_version_is_not_read_from_a_snapshot_of_missing_events() {
    let table = TestTable::new().await;
    let account = ledger(&table.store(), "1", 30).await;
    let metadata = table.row(&account.key, keys::METADATA).await.unwrap();
    ledger(&table.store(), "1", 40).await;
    take(&table.store(), &account).await;
    table.put(metadata).await;
    for event in 31..=40 {
        table.delete(&account.key, &keys::event_sk(event)).await;
    }
    let at = account.load_at(&table.store(), 40).await;
    assert_eq!((at.version(), &state(&at)["balance"]), (30, &json!(balance(30))));
}

#[tokio::test]
async fn replaced_snapshot_of_another_state_version_is_kept_for_a_week() {
    const DAY: u64 = 24 * 60 * 60;
    let table = TestTable::new().await;
    let store = || table.store();
    let (older, newer) = (Subject::of::<Notebook<1>>("1"), Subject::of::<Notebook<2>>("1"));
    older.command(&store(), "Start", json!({"lines": ["1"]})).await;
    take(&store(), &older).await;
    for release in [&older, &newer, &newer, &newer, &newer] {
        release.command(&store(), "Write", json!({"lines": ["more"]})).await;
        take(&store(), release).await;
    }
    // The older release could be rolled back to, and finds its own.
    let rows = table.rows(&older.key, keys::KEPT_SNAPSHOT_PREFIX).await;
    let of = |row: &Item| ["stateVersion", "lastSeqNum"].map(|name| number(row, name));
    assert_eq!(rows.iter().map(of).collect::<Vec<_>>(), [[1, 2]]);
    let today = u64::try_from(now().as_second()).unwrap();
    assert!(number(&rows[0], "ttl") >= today + 7 * DAY - 60, "{rows:?}");
    table.proxy.take_calls();
    assert_eq!(older.load(&store()).await.version(), 6);
    let reads = table.proxy.take_calls();
    assert!(reads.iter().all(|call| call.request["ExpressionAttributeValues"][":first"]["S"] != keys::event_sk(2)));
}

#[tokio::test]
async fn new_release_keeps_a_snapshot_of_the_same_event() {
    let table = TestTable::new().await;
    let (older, newer) = (Subject::of::<Notebook<1>>("1"), Subject::of::<Notebook<2>>("1"));
    older.command(&table.store(), "Start", json!({"lines": ["1"]})).await;
    take(&table.store(), &older).await;
    // A repeated call has no effect.
    assert_eq!(take(&table.store(), &newer).await, SnapshotOutcome::Taken { version: 1 });
    assert_eq!(take(&table.store(), &newer).await, SnapshotOutcome::NotNewer);
    let latest = table.row(&older.key, keys::SNAPSHOT).await.unwrap();
    let kept = table.row(&older.key, &keys::kept_snapshot_sk(1)).await.unwrap();
    assert_eq!((number(&latest, "stateVersion"), number(&kept, "stateVersion")), (2, 1));
}

/// An account with a latest snapshot of another release, and kept ones of events 100, 200 and 300.
async fn account_with_kept(table: &TestTable) -> Subject {
    let account = Subject::shipped("account", "1");
    for version in [100, 200, 300, 400] {
        ledger(&table.store(), "1", version).await;
        take(&table.store(), &account).await;
        let mut row = table.row(&account.key, keys::SNAPSHOT).await.unwrap();
        let (name, value) = match version {
            400 => ("stateVersion", AttributeValue::N("7".to_owned())),
            _ => ("sk", AttributeValue::S(keys::kept_snapshot_sk(version))),
        };
        row.insert(name.to_owned(), value);
        table.put(sealed(row)).await;
    }
    account
}

#[tokio::test]
async fn unusable_kept_snapshot_does_not_hide_an_older_one() {
    let unusable = [
        ("state", AttributeValue::S("no JSON".into())),
        ("stateVersion", AttributeValue::N("7".into())),
        ("stateVersion", AttributeValue::S("1".into())),
        ("lastSeqNum", AttributeValue::N("150".into())),
        ("lastSeqNum", AttributeValue::N("450".into())),
    ];
    for (attribute, value) in unusable {
        let table = TestTable::new().await;
        let account = account_with_kept(&table).await;
        for version in [200, 300] {
            table.tamper(&account.key, &keys::kept_snapshot_sk(version), [(attribute, value.clone())]).await;
        }
        table.proxy.take_calls();
        let at = account.load_at(&table.store(), 350).await;
        assert_eq!((at.version(), &state(&at)["balance"]), (350, &json!(balance(350))), "{attribute} {value:?}");
        let calls = table.proxy.take_calls();
        assert_eq!(calls.len(), 3, "the latest, the kept ones in one page, the events");
        assert_eq!(calls[2].request["ExpressionAttributeValues"][":first"]["S"], keys::event_sk(101));
        // An unreadable latest snapshot does not hide it either.
        let broken = [("state", AttributeValue::S("no JSON".into())), ("stateVersion", AttributeValue::N("1".into()))];
        table.tamper(&account.key, keys::SNAPSHOT, broken).await;
        let at = account.load(&table.store()).await;
        assert_eq!((at.version(), &state(&at)["balance"]), (400, &json!(balance(400))), "{attribute} {value:?}");
    }
}

#[tokio::test]
async fn rebuild_deletes_the_kept_snapshots_that_this_release_would_use() {
    let table = TestTable::new().await;
    let account = account_with_kept(&table).await;
    let mut of_other_release = table.row(&account.key, &keys::kept_snapshot_sk(200)).await.unwrap();
    of_other_release.insert("stateVersion".to_owned(), AttributeValue::N("7".to_owned()));
    table.put(sealed(of_other_release)).await;
    table
        .tamper(&account.key, &keys::kept_snapshot_sk(300), [("stateVersion", AttributeValue::N("7".to_owned()))])
        .await;
    let outcome = table.store().rebuild_snapshot(account.model(), &account.key, now()).await.unwrap();
    assert_eq!(outcome, SnapshotOutcome::Taken { version: 400 });
    let kept = table.rows(&account.key, keys::KEPT_SNAPSHOT_PREFIX).await;
    let versions: Vec<_> = kept.iter().map(|row| number(row, "lastSeqNum")).collect();
    // That of the other release which was replaced now is also kept.
    assert_eq!(versions, [200, 400]);
    assert_eq!(state(&account.load(&table.store()).await)["balance"], balance(400));
}

#[tokio::test]
async fn rebuild_that_cannot_fold_the_events_deletes_no_kept_snapshot() {
    let table = TestTable::new().await;
    let account = account_with_kept(&table).await;
    table.delete(&account.key, &keys::event_sk(50)).await;
    let rows = table.rows(&account.key, keys::KEPT_SNAPSHOT_PREFIX).await;
    let error = table.store().rebuild_snapshot(account.model(), &account.key, now()).await.unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error:?}");
    assert_eq!(table.rows(&account.key, keys::KEPT_SNAPSHOT_PREFIX).await, rows);
    // The event is before the kept snapshot that the state is folded from.
    assert_eq!(state(&account.load(&table.store()).await)["balance"], balance(400));
}
