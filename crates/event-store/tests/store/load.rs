//! Loads: always everything that was committed, in order, or an error that names what is wrong.

use std::pin::pin;

use aws_sdk_dynamodb::types::AttributeValue;
use daybook_event_store::{EventStore, LoadOptions, Loaded, StoreError, StoreSettings};
use daybook_table::keys;
use daybook_test_support::clock::now;
use daybook_test_support::fault_proxy::{InjectedFault, RecordedCall};
use daybook_test_support::notebook::Notebook;
use daybook_test_support::row::Item;
use daybook_test_support::table::{TestTable, settings};
use serde_json::json;

use crate::support::{Subject, balance, large_ledger, ledger, reads, state};

/// The whole text of an error that must be [`StoreError::Corrupt`].
fn corrupt(error: StoreError) -> String {
    match error {
        StoreError::Corrupt { item, source } => format!("{item}: {source}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn missing_aggregate_is_at_version_zero_and_not_cached() {
    let table = TestTable::new().await;
    let store = table.store();
    let account = Subject::shipped("account", "nobody");
    assert_eq!(account.load(&store).await.version(), 0);
    assert_eq!(account.rebuild(&store).await.version(), 0);
    assert_eq!(account.load_at(&store, 5).await.version(), 0);
    assert!(store.cached(&account.key).is_none());
}

#[tokio::test]
async fn versions_beyond_ten_and_a_thousand_are_in_order() {
    let table = TestTable::new().await;
    for version in [11, 1_101] {
        let account = ledger(&table.store(), "1", version).await;
        let store = table.store();
        for loaded in [account.load(&store).await, account.rebuild(&store).await] {
            assert_eq!((loaded.version(), &state(&loaded)["balance"]), (version, &json!(balance(version))));
        }
        let page = store.events(&account.key, 0, 2_000).await.unwrap();
        let numbers: Vec<_> = page.items.iter().map(|event| event.seq_num).collect();
        assert_eq!(numbers, (1..=version).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn a_stream_larger_than_a_page_is_read_to_its_end() {
    let table = TestTable::new().await;
    let account = large_ledger(&table.store(), "1", 10).await;
    let cold = table.store();
    let seen = |loaded: Loaded| (loaded.version(), state(&loaded)["balance"].clone());
    table.proxy.take_calls();
    assert_eq!(seen(account.load(&cold).await), (10, json!(balance(10))));
    // The page of the latest three events, then two pages of the events before them.
    assert_eq!(table.operations(), ["GetItem", "Query", "Query", "Query"]);
    assert_eq!(seen(account.rebuild(&cold).await), (10, json!(balance(10))));
    assert!(table.operations().len() > 2);
    assert_eq!(seen(account.load_at(&cold, 8).await), (8, json!(balance(8))));
}

#[tokio::test]
async fn every_read_of_an_aggregate_is_consistent() {
    let table = TestTable::new().await;
    let every_fifth = StoreSettings { snapshot_every: 5, ..settings() };
    let account = ledger(&table.store(), "1", 23).await;
    let store = table.store_with(every_fifth.clone());
    table.proxy.take_calls();
    for version in [23, 24] {
        ledger(&table.store(), "1", version).await;
        store.take_snapshot(account.model(), &account.key, now()).await.unwrap();
        account.load(&store).await;
        account.load(&table.store_with(every_fifth.clone())).await;
        account.load_at(&store, 7).await;
        account.rebuild(&store).await;
        account.rebuild_at(&store, 7).await;
        store.events(&account.key, 3, 4).await.unwrap();
    }
    let calls = table.proxy.take_calls();
    assert!(reads(&calls).count() > 15);
    for call in reads(&calls) {
        assert_eq!(call.request["ConsistentRead"], true, "{call:?}");
    }
}

#[tokio::test]
async fn a_stale_cache_is_brought_up_to_date() {
    let table = TestTable::new().await;
    let (one, other) = (table.store(), table.store());
    let account = ledger(&one, "1", 4).await;
    assert_eq!(account.load(&other).await.version(), 4);
    for version in [5, 6, 150] {
        ledger(&one, "1", version).await;
        table.proxy.take_calls();
        let loaded = account.load(&other).await;
        assert_eq!((loaded.version(), &state(&loaded)["balance"]), (version, &json!(balance(version))));
        assert_eq!(table.operations(), ["Query"]);
        assert_eq!(other.cached(&account.key).unwrap().version(), version);
    }
}

#[tokio::test]
async fn load_with_a_cache_that_is_far_behind_makes_few_calls() {
    for snapshots in [true, false] {
        let table = TestTable::new().await;
        let (one, other) = (table.store(), table.store());
        let account = ledger(&one, "1", 4).await;
        account.load(&other).await;
        ledger(&one, "1", 1_050).await;
        if snapshots {
            one.take_snapshot(account.model(), &account.key, now()).await.unwrap();
        }
        ledger(&one, "1", 1_100).await;
        table.proxy.take_calls();
        let loaded = account.load(&other).await;
        assert_eq!((loaded.version(), &state(&loaded)["balance"]), (1_100, &json!(balance(1_100))));
        let calls = table.proxy.take_calls();
        let read: u64 = calls.iter().filter_map(|call| call.request["Limit"].as_u64()).sum();
        if snapshots {
            assert_eq!((calls.len(), read), (4, 204), "200 events on from the cache, the latest four, the snapshot");
            // Exactly the events between the snapshot and the latest four.
            let rest = calls.iter().find(|call| call.operation == "Query" && call.request["Limit"].is_null()).unwrap();
            let values = &rest.request["ExpressionAttributeValues"];
            assert_eq!(
                [&values[":first"]["S"], &values[":last"]["S"]],
                [&keys::event_sk(1_051), &keys::event_sk(1_096)]
            );
        } else {
            // The events that have been folded already are not read again.
            let rest = calls.iter().find(|call| call.operation == "Query" && call.request["Limit"].is_null()).unwrap();
            assert_eq!(rest.request["ExpressionAttributeValues"][":first"]["S"], keys::event_sk(205));
        }
    }
}

#[tokio::test]
async fn aggregate_can_be_loaded_at_every_version() {
    let table = TestTable::new().await;
    let store = table.store_with(StoreSettings { snapshot_every: 10, ..settings() });
    let mut account = ledger(&store, "1", 1).await;
    for version in 2..=25 {
        account = ledger(&store, "1", version).await;
        if version % 7 == 0 {
            store.take_snapshot(account.model(), &account.key, now()).await.unwrap();
        }
    }
    for version in 0..=27 {
        let seen = version.min(25);
        let at = account.load_at(&store, version).await;
        assert_eq!((at.version(), &state(&at)["balance"]), (seen, &json!(balance(seen))));
        let at = account.rebuild_at(&store, version).await;
        assert_eq!((at.version(), &state(&at)["balance"]), (seen, &json!(balance(seen))));
    }
    // A load of an earlier version does not replace the cached state.
    assert_eq!(store.cached(&account.key).unwrap().version(), 25);
}

#[tokio::test]
async fn rebuild_uses_the_events_and_no_snapshot() {
    let table = TestTable::new().await;
    let store = table.store();
    let account = ledger(&store, "1", 8).await;
    store.take_snapshot(account.model(), &account.key, now()).await.unwrap();
    let wrong = r#"{"id":"1","ownerFirst":"","ownerLast":"","balance":-1,"minimumBalance":-1000}"#;
    table.tamper(&account.key, keys::SNAPSHOT, [("state", AttributeValue::S(wrong.into()))]).await;
    let cold = table.store();
    // Loads that use snapshots return the wrong state, so the rest of this test is conclusive.
    assert_eq!(state(&account.load(&cold).await)["balance"], -1);
    assert_eq!(state(&account.load_at(&cold, 8).await)["balance"], -1);

    let right = account.rebuild_at(&store, 8).await;
    assert_eq!(state(&right)["balance"], balance(8));
    assert_eq!(state(&account.rebuild(&cold).await)["balance"], balance(8));
    // The rebuild has replaced the cached wrong state.
    assert_eq!(state(&account.load(&cold).await)["balance"], balance(8));
}

#[tokio::test]
async fn gap_in_the_stream_is_corrupt_and_named() {
    for snapshot_every in [2, 3, 4, 5, 100] {
        let table = TestTable::new().await;
        let few = StoreSettings { snapshot_every, ..settings() };
        let account = ledger(&table.store(), "1", 8).await;
        let warm = table.store_with(few.clone());
        account.load(&warm).await;
        table.delete(&account.key, &keys::event_sk(4)).await;

        let cold = || table.store_with(few.clone());
        let at_6 = LoadOptions { at: Some(6), ..LoadOptions::default() };
        for error in [
            cold().load(account.model(), &account.key).await.unwrap_err(),
            cold().load_with(account.model(), &account.key, at_6).await.unwrap_err(),
            warm.load_with(account.model(), &account.key, LoadOptions::REBUILD).await.unwrap_err(),
        ] {
            let error = corrupt(error);
            assert!(error.starts_with("account/1: event 4 is missing, the stream has events up to "), "{error}");
        }
        assert_eq!(account.load_at(&cold(), 3).await.version(), 3);
    }
}

#[tokio::test]
async fn gap_after_a_cached_state_is_corrupt() {
    let table = TestTable::new().await;
    let store = table.store();
    let account = ledger(&store, "1", 4).await;
    ledger(&table.store(), "1", 7).await;
    table.delete(&account.key, &keys::event_sk(5)).await;
    let error = corrupt(store.load(account.model(), &account.key).await.unwrap_err());
    assert_eq!(error, "account/1: event 5 is missing, the stream has events up to 7");
    assert_eq!(store.cached(&account.key).unwrap().version(), 4);
}

#[tokio::test]
async fn unreadable_event_is_corrupt_and_named() {
    let text = |value: &str| AttributeValue::S(value.to_owned());
    let number = |value: &str| AttributeValue::N(value.to_owned());
    for (attribute, value, named) in [
        ("data", text("no JSON"), "AGGREGATE#account#1 EVENT#000000000003"),
        ("data", text(r#"{"desc":"payment"}"#), "event 3 (TransactionAccepted version 1)"),
        ("data", number("3"), "AGGREGATE#account#1 EVENT#000000000003"),
        ("eventId", text("no ULID"), "AGGREGATE#account#1 EVENT#000000000003"),
        ("occurredAt", text("yesterday"), "AGGREGATE#account#1 EVENT#000000000003"),
        ("seqNum", number("4"), "AGGREGATE#account#1 EVENT#000000000003"),
        ("seqNum", text("three"), "AGGREGATE#account#1 EVENT#000000000003"),
        ("eventVersion", number("0"), "event 3 (TransactionAccepted version 0)"),
        ("meta", text("nobody"), "AGGREGATE#account#1 EVENT#000000000003"),
    ] {
        let table = TestTable::new().await;
        let account = ledger(&table.store(), "1", 5).await;
        table.tamper(&account.key, &keys::event_sk(3), [(attribute, value.clone())]).await;
        let store = table.store();
        let error = corrupt(store.load(account.model(), &account.key).await.unwrap_err());
        assert!(error.contains(named), "{attribute} {value:?}: {error}");
        assert!(store.cached(&account.key).is_none());
    }
}

#[tokio::test]
async fn event_of_a_newer_release_is_distinguished_from_a_corrupt_one() {
    for (attribute, value, named) in [
        ("eventType", AttributeValue::S("MoneyLent".into()), "event 3 (MoneyLent version 1)"),
        ("eventVersion", AttributeValue::N("2".into()), "event 3 (TransactionAccepted version 2)"),
    ] {
        let table = TestTable::new().await;
        let account = ledger(&table.store(), "1", 5).await;
        table.tamper(&account.key, &keys::event_sk(3), [(attribute, value)]).await;
        let store = table.store();
        let error = store.load(account.model(), &account.key).await.unwrap_err();
        let StoreError::Newer { item, source } = error else { panic!("{error:?}") };
        assert_eq!(item, "account/1");
        assert!(source.to_string().contains(named), "{source}");
        assert!(store.cached(&account.key).is_none());
        // Versions before that event can still be loaded.
        assert_eq!(account.load_at(&store, 2).await.version(), 2);
    }
}

#[tokio::test]
async fn cold_load_reads_further_back_only_when_more_than_four_events_follow_the_snapshot() {
    let table = TestTable::new().await;
    let every_tenth = StoreSettings { snapshot_every: 10, ..settings() };
    let account = ledger(&table.store(), "1", 10).await;
    let cold = || table.store_with(every_tenth.clone());
    cold().take_snapshot(account.model(), &account.key, now()).await.unwrap();
    for (version, between) in
        [(10, None), (11, None), (14, None), (15, Some([11, 11])), (19, Some([11, 15])), (137, Some([11, 133]))]
    {
        ledger(&table.store(), "1", version).await;
        table.proxy.take_calls();
        let loaded = account.load(&cold()).await;
        assert_eq!((loaded.version(), &state(&loaded)["balance"]), (version, &json!(balance(version))));
        let mut calls = table.proxy.take_calls();
        let rest = calls.split_off(2);
        assert!(calls.iter().all(|call| call.operation == "GetItem" || call.request["Limit"] == 4), "{calls:?}");
        let range = |call: &RecordedCall| {
            let values = &call.request["ExpressionAttributeValues"];
            [values[":first"]["S"].clone(), values[":last"]["S"].clone()]
        };
        let expected: Vec<_> =
            between.map(|numbers| numbers.map(|number| json!(keys::event_sk(number)))).into_iter().collect();
        assert_eq!(rest.iter().map(range).collect::<Vec<_>>(), expected, "at version {version}");
    }
}

#[tokio::test]
async fn load_of_a_full_history_reads_the_events_once_and_in_order() {
    let table = TestTable::new().await;
    let diary = Subject::of::<Notebook<1, true>>("1");
    let lines: Vec<_> = (1..=60).map(|number| number.to_string()).collect();
    diary.command(&table.store(), "Start", json!({ "lines": lines })).await;
    let store = table.store();
    for _ in 0..2 {
        table.proxy.take_calls();
        assert_eq!(state(&diary.load(&store).await)["lines"], json!(lines));
        assert_eq!(table.operations(), ["Query"]);
    }
}

#[tokio::test]
async fn decisions_on_a_state_are_the_same_however_it_was_loaded() {
    let table = TestTable::new().await;
    let todo = Subject::shipped("todo", "1");
    todo.command(&table.store(), "CreateTodo", json!({"title": "A", "message": "B"})).await;
    let store = table.store();
    store.take_snapshot(todo.model(), &todo.key, now()).await.unwrap();
    let go_on = async |store: &EventStore| todo.load(store).await;
    let by_snapshot = go_on(&table.store()).await;
    let by_cache = go_on(&store).await;
    let by_events = todo.rebuild(&table.store()).await;
    for loaded in [by_snapshot, by_cache, by_events] {
        assert_eq!(state(&loaded), json!({"id": "1", "title": "A", "message": "B"}));
        assert_eq!((loaded.version(), loaded.folded.message_seq()), (1, 1));
        let decided = todo.decide(&loaded.folded, &[("UpdateTodo", json!({"title": "A", "message": "C"}))]);
        assert_eq!((decided.events[0].seq_num, decided.messages[0].message_seq), (2, 2));
    }
}

/// An append of three events of which a query sees only those at `seen`, until a moment later.
async fn load_while_committing(seen: [u64; 2]) -> (Loaded, TestTable) {
    let table = TestTable::new().await;
    let account = ledger(&table.store(), "1", 2).await;
    let transaction = ("RecordTransaction", json!({"desc": "", "amount": 1}));
    account.commands(&table.store(), &[transaction.clone(), transaction.clone(), transaction]).await;
    let hidden: Vec<_> = (3..=5).filter(|number| !seen.contains(number)).collect();
    let mut rows = Vec::new();
    for number in hidden {
        let sk = keys::event_sk(number);
        rows.push(table.row(&account.key, &sk).await.unwrap());
        table.delete(&account.key, &sk).await;
    }
    let store = table.store();
    let load = account.load(&store);
    let commit = async {
        for row in rows {
            table.put(row).await;
        }
    };
    let (loaded, ()) = tokio::join!(load, commit);
    (loaded, table)
}

#[tokio::test]
async fn append_is_loaded_completely_or_not_at_all() {
    for seen in [[3, 4], [3, 3], [3, 5], [4, 5], [5, 5], [4, 4]] {
        let (loaded, _table) = load_while_committing(seen).await;
        assert_eq!(loaded.version(), 5, "{seen:?}");
    }
}

/// The result is the same however the aggregate is loaded.
#[tokio::test]
async fn append_whose_end_never_appears_is_an_error() {
    let table = TestTable::new().await;
    let warm = table.store();
    let account = ledger(&warm, "1", 2).await;
    let transaction = ("RecordTransaction", json!({"desc": "", "amount": 1}));
    account.commands(&table.store(), &[transaction.clone(), transaction.clone(), transaction]).await;
    table.delete(&account.key, &keys::event_sk(5)).await;
    let cold = [table.store(), table.store()];
    let (by_cache, by_page, by_all) = tokio::join!(
        warm.load(account.model(), &account.key),
        cold[0].load(account.model(), &account.key),
        cold[1].load_with(account.model(), &account.key, LoadOptions::REBUILD),
    );
    for loaded in [by_cache, by_page, by_all] {
        assert_eq!(corrupt(loaded.unwrap_err()), "account/1: event 5 is missing, the stream has events up to 5");
    }
}

/// An account of three events, of which one append wrote the last two, and the row of the third, which the table does
/// not have yet.
async fn partly_visible_append(table: &TestTable) -> (Subject, Item) {
    let account = ledger(&table.store(), "1", 1).await;
    let transaction = ("RecordTransaction", json!({"desc": "", "amount": 1}));
    account.commands(&table.store(), &[transaction.clone(), transaction]).await;
    let last = table.row(&account.key, &keys::event_sk(3)).await.unwrap();
    table.delete(&account.key, &keys::event_sk(3)).await;
    (account, last)
}

/// The latest events are read while an append is partly visible, and the snapshot after the whole append is visible.
#[tokio::test]
async fn load_from_a_snapshot_of_a_partly_visible_append_has_the_time_of_its_last_event() {
    let table = TestTable::new().await;
    let (account, last) = partly_visible_append(&table).await;
    let sk = keys::event_sk(3);
    table.put(last.clone()).await;
    table.store().take_snapshot(account.model(), &account.key, now()).await.unwrap();
    table.delete(&account.key, &sk).await;
    let store = table.store();
    table.proxy.take_calls();
    for _ in 0..3 {
        table.proxy.fail_next("GetItem", InjectedFault::Refuse { status: 500, code: "InternalServerError" });
    }
    let mut load = pin!(account.load(&store));
    table.proxy.hold(&mut load, |calls| calls.iter().any(|call| call.operation == "Query")).await;
    table.put(last).await;
    let loaded = load.await;
    assert_eq!(loaded.version(), 3);
    assert_eq!(loaded.folded.last_event(), account.rebuild(&table.store()).await.folded.last_event());
}

/// The event appears only after the third query.
#[tokio::test]
async fn append_whose_end_appears_late_is_loaded_completely() {
    let table = TestTable::new().await;
    let (account, last) = partly_visible_append(&table).await;
    let store = table.store();
    table.proxy.take_calls();
    let mut load = pin!(account.load(&store));
    let queries = |calls: &[RecordedCall]| calls.iter().filter(|call| call.operation == "Query").count();
    table.proxy.hold(&mut load, |calls| queries(calls) == 3).await;
    table.put(last).await;
    assert_eq!(load.await.version(), 3);
}

/// Each missing event appears after five more queries. Together that takes longer than a single event may take.
#[tokio::test]
async fn events_of_several_appends_that_appear_late_are_loaded_completely() {
    let table = TestTable::new().await;
    let account = ledger(&table.store(), "1", 31).await;
    let mut missing = Vec::new();
    for number in (2..=30).step_by(2) {
        let sk = keys::event_sk(number);
        missing.push(table.row(&account.key, &sk).await.unwrap());
        table.delete(&account.key, &sk).await;
    }
    let store = table.store();
    let mut load = pin!(store.load_with(account.model(), &account.key, LoadOptions::REBUILD));
    let queries = |calls: &[RecordedCall]| calls.iter().filter(|call| call.operation == "Query").count();
    for row in missing {
        table.proxy.take_calls();
        table.proxy.hold(&mut load, |calls| queries(calls) == 5).await;
        table.put(row).await;
    }
    assert_eq!(load.await.unwrap().version(), 31);
}

/// The first page refers to an event that the second page should contain and does not contain yet.
#[tokio::test]
async fn append_that_continues_on_the_next_page_is_loaded_completely() {
    let table = TestTable::new().await;
    let (account, last) = partly_visible_append(&table).await;
    table.proxy.take_calls();
    table.proxy.fail_next("Query", InjectedFault::ShortPage { items: 2 });
    let store = table.store();
    let mut rebuild = pin!(account.rebuild(&store));
    table.proxy.hold(&mut rebuild, |calls| calls.len() == 2).await;
    table.put(last).await;
    assert_eq!(rebuild.await.version(), 3);
}

#[tokio::test]
async fn a_page_of_events_ends_before_one_that_is_missing() {
    let table = TestTable::new().await;
    let store = table.store();
    let account = ledger(&store, "1", 5).await;
    table.delete(&account.key, &keys::event_sk(4)).await;
    let page = store.events(&account.key, 0, 100).await.unwrap();
    assert_eq!(page.items.iter().map(|event| event.seq_num).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(store.events(&account.key, 3, 100).await.unwrap().items.is_empty());
}
