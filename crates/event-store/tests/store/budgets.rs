//! The cost of commands and loads, in calls and capacity units.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::RangeInclusive;
use std::path::Path;

use aws_sdk_dynamodb::types::AttributeValue as SdkValue;
use daybook_decider::{Json, Meta, RecordedEvent};
use daybook_event_store::EventStore;
use daybook_event_store::limits::item_size;
use daybook_local_aws::dynamodb::LocalDynamoDb;
use daybook_table::{AggregateKey, EventItem, SnapshotItem, StoredText, keys};
use daybook_test_support::clock::now;
use daybook_test_support::row::{notation, number};
use daybook_test_support::table::{TABLE, TestTable, settings};
use dynoxide::{AttributeValue, Database, ImportOptions};
use jiff::Timestamp;
use serde_json::json;
use ulid::Ulid;

use crate::support::{Subject, balance, ledger, ledger_of, state};

#[tokio::test]
async fn command_on_a_warm_cache_makes_one_call() {
    let table = TestTable::new().await;
    let store = table.store();
    let todo = Subject::shipped("todo", "1");
    todo.command(&store, "CreateTodo", json!({"title": "A", "message": ""})).await;
    for title in ["B", "C"] {
        table.proxy.take_calls();
        todo.command(&store, "UpdateTodo", json!({"title": title, "message": ""})).await;
        assert_eq!(table.operations(), ["TransactWriteItems"]);
    }
    // A state that a load has cached saves the same reads as one that an append has cached.
    let loaded = table.store();
    todo.load(&loaded).await;
    table.proxy.take_calls();
    todo.command(&loaded, "DeleteTodo", json!({})).await;
    assert_eq!(table.operations(), ["TransactWriteItems"]);
}

#[tokio::test]
async fn command_on_a_cold_cache_makes_two_or_three_reads_and_the_append() {
    let table = TestTable::new().await;
    let every = settings().snapshot_every;
    let account = ledger(&table.store(), "1", 4).await;
    let in_parallel = ["GetItem", "Query"];
    let with_the_rest = ["GetItem", "Query", "Query"];
    // Without a snapshot, with one, and with the usual maximum number of events after it.
    for (version, with_snapshot, reads) in [
        (4, false, &in_parallel[..]),
        (every, false, &with_the_rest),
        (every, true, &in_parallel),
        (every + 4, false, &in_parallel),
        (2 * every, false, &with_the_rest),
    ] {
        ledger(&table.store(), "1", version).await;
        if with_snapshot {
            table.store().take_snapshot(account.model(), &account.key, now()).await.unwrap();
        }
        let cold = table.store();
        table.proxy.take_calls();
        let before = account.load(&cold).await;
        assert_eq!(before.version(), version);
        assert_eq!(table.operations(), reads, "at version {version}");
    }
    let cold = table.store();
    table.proxy.take_calls();
    account.command(&cold, "RecordTransaction", json!({"desc": "payment", "amount": 1})).await;
    assert_eq!(table.operations(), ["GetItem", "Query", "Query", "TransactWriteItems"]);
}

/// The calls since they were last taken, in alphabetical order, and the units that they read.
fn cost(table: &TestTable) -> (Vec<String>, f64) {
    let calls = table.proxy.take_calls();
    let units = calls.iter().map(|call| call.table_units).sum();
    let mut operations: Vec<_> = calls.into_iter().map(|call| call.operation).collect();
    operations.sort();
    (operations, units)
}

/// The bytes of the events with these numbers, in read units of 4 KB that are not rounded.
async fn units_of(table: &TestTable, account: &Subject, numbers: RangeInclusive<u64>) -> f64 {
    let rows = table.rows(&account.key, keys::EVENT_PREFIX).await;
    let bytes: usize = rows.iter().filter(|row| numbers.contains(&number(row, "seqNum"))).map(item_size).sum();
    f64::from(u32::try_from(bytes).unwrap()) / 4096.0
}

#[tokio::test]
async fn cold_load_reads_little_more_than_the_snapshot_and_the_events_after_it() {
    for (data, snapshot_at, tails) in [
        (16, 1_000, &[0, 1, 3, 4, 5, 50, 99, 500][..]),
        (1_024, 100, &[0, 1, 3, 4, 5, 50, 99]),
        (10 * 1_024, 10, &[3, 4, 5, 50]),
    ] {
        let table = TestTable::new().await;
        let desc = "A".repeat(data);
        let account = ledger_of(&table.store(), "1", snapshot_at, &desc).await;
        table.store().take_snapshot(account.model(), &account.key, now()).await.unwrap();
        for tail in tails {
            let version = snapshot_at + tail;
            ledger_of(&table.store(), "1", version, &desc).await;
            table.proxy.take_calls();
            let loaded = account.load(&table.store()).await;
            assert_eq!((loaded.version(), &state(&loaded)["balance"]), (version, &json!(balance(version))));
            let (calls, units) = cost(&table);
            // The first two are in parallel, so a load is one round trip deep, or two.
            let expected = if *tail <= 4 { &["GetItem", "Query"][..] } else { &["GetItem", "Query", "Query"] };
            assert_eq!(calls, expected, "{tail} events of {data} bytes");
            let most = 3.0 + 1.25 * units_of(&table, &account, snapshot_at + 1..=version).await;
            assert!(units <= most, "{tail} events of {data} bytes: {units} read units, of {most}");
            assert!(*tail != 3 || data > 1_024 || units <= 5.0, "{data} bytes: {units} read units");
        }
    }
}

#[tokio::test]
async fn load_after_a_lost_race_reads_only_the_newer_events() {
    let table = TestTable::new().await;
    let store = table.store();
    let account = ledger(&store, "1", 110).await;
    for (version, newer) in [(111, 111..=111), (114, 112..=114), (164, 115..=164)] {
        ledger(&table.store(), "1", version).await;
        table.proxy.take_calls();
        assert_eq!(account.load(&store).await.version(), version);
        let (calls, units) = cost(&table);
        assert_eq!((calls, units), (vec!["Query".to_owned()], units_of(&table, &account, newer).await.ceil()));
    }
}

#[tokio::test]
async fn load_without_a_usable_snapshot_reads_every_event_once() {
    let table = TestTable::new().await;
    let account = ledger(&table.store(), "1", 200).await;
    table.store().take_snapshot(account.model(), &account.key, now()).await.unwrap();
    let good = table.row(&account.key, keys::SNAPSHOT).await.unwrap();
    let most = 3.0 + 1.25 * units_of(&table, &account, 1..=200).await;
    let number_of = |value: &str| SdkValue::N(value.to_owned());
    for (attribute, value) in [
        ("state", SdkValue::S("no JSON".to_owned())),
        ("stateVersion", number_of("7")),
        ("lastSeqNum", number_of("999")),
    ] {
        table.put(good.clone()).await;
        table.tamper(&account.key, keys::SNAPSHOT, [(attribute, value)]).await;
        table.proxy.take_calls();
        assert_eq!(account.load(&table.store()).await.version(), 200);
        let (calls, units) = cost(&table);
        // A query for a kept snapshot, or for events that a snapshot contains and the first query did not find.
        assert_eq!(calls, ["GetItem", "Query", "Query", "Query"], "{attribute}");
        assert!(units <= most, "{attribute}: {units} read units, of {most}");
    }
}

#[tokio::test]
async fn load_of_a_past_version_reads_little_more_than_its_snapshot_and_the_events_after_it() {
    let table = TestTable::new().await;
    let store = table.store();
    let account = ledger(&store, "1", 400).await;
    store.take_snapshot(account.model(), &account.key, now()).await.unwrap();
    ledger(&store, "1", 450).await;
    for version in [1, 199, 399, 400, 403, 450] {
        let snapshot = if version < 400 { 0 } else { 400 };
        table.proxy.take_calls();
        assert_eq!(account.load_at(&store, version).await.version(), version);
        let (calls, units) = cost(&table);
        assert!(calls.len() <= 2, "version {version}: {calls:?}");
        let most = 3.0 + 1.25 * units_of(&table, &account, snapshot + 1..=version).await;
        assert!(units <= most, "version {version}: {units} read units, of {most}");
    }
}

#[tokio::test]
async fn page_of_events_reads_one_event_more_than_it_returns() {
    let table = TestTable::new().await;
    let store = table.store();
    let account = ledger_of(&store, "1", 60, &"A".repeat(1_024)).await;
    // The event after the page shows whether there are more.
    for (after, limit, last) in [(0, 1, 2), (0, 20, 21), (57, 2, 60), (50, 10, 60), (55, 100, 60), (60, 10, 60)] {
        table.proxy.take_calls();
        store.events(&account.key, after, limit).await.unwrap();
        let (calls, units) = cost(&table);
        assert_eq!(calls, ["Query"]);
        let read = units_of(&table, &account, after + 1..=last).await;
        assert!(units <= read.ceil().max(1.0), "{limit} events after {after}: {units} read units of {read}");
    }
    // The index is read eventually consistently, at half the units.
    let settled = Timestamp::constant(4_102_444_800, 0);
    store.feed(&["TransactionAccepted"], None, 20, settled).await.unwrap();
    let calls = table.proxy.take_calls();
    assert_eq!(calls.len(), 1);
    let read = units_of(&table, &account, 2..=22).await;
    assert!(calls[0].table_units + calls[0].index_units <= read.ceil() / 2.0, "{calls:?}");
}

/// The operation that a request names, read to the end of its body.
fn operation(stream: &mut TcpStream) -> String {
    let mut reader = BufReader::new(stream);
    let (mut operation, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        match line.trim().split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => length = value.parse().unwrap(),
            Some((name, value)) if name.eq_ignore_ascii_case("x-amz-target") => operation = value.to_owned(),
            None if line.trim().is_empty() => break,
            _ => {}
        }
    }
    reader.read_exact(&mut vec![0; length]).unwrap();
    operation
}

#[tokio::test]
async fn two_reads_of_a_cold_load_run_in_parallel() {
    // A service that responds only after it has received two requests.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let service = std::thread::spawn(move || {
        let mut calls = [listener.accept().unwrap().0, listener.accept().unwrap().0];
        let mut operations = calls.each_mut().map(operation);
        for call in &mut calls {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/x-amz-json-1.0\r\ncontent-length: 2\r\n\r\n{}";
            call.write_all(head.as_bytes()).unwrap();
        }
        operations.sort();
        operations
    });
    let store = EventStore::new(&daybook_function_runtime::aws_config_at(&url), settings());
    assert_eq!(Subject::shipped("todo", "1").load(&store).await.version(), 0);
    assert_eq!(service.join().unwrap(), ["DynamoDB_20120810.GetItem", "DynamoDB_20120810.Query"]);
}

#[tokio::test]
async fn event_with_a_message_costs_six_table_units_and_one_index_unit() {
    let table = TestTable::new().await;
    let store = table.store();
    let todo = Subject::shipped("todo", "1");
    for (version, command, message) in [(1, "CreateTodo", "A"), (2, "UpdateTodo", "B"), (3, "UpdateTodo", "C")] {
        table.proxy.take_calls();
        todo.command(&store, command, json!({"title": "Make coffee", "message": message.repeat(300)})).await;
        for sk in [keys::event_sk(version), keys::outbox_sk(version, 0)] {
            let bytes = item_size(&table.row(&todo.key, &sk).await.unwrap());
            assert!((500..=1024).contains(&bytes), "{sk} has {bytes} bytes");
        }
        let calls = table.proxy.take_calls();
        let append = calls.iter().find(|call| call.operation == "TransactWriteItems").unwrap();
        assert_eq!((append.table_units, append.index_units), (6.0, 1.0));
    }
}

/// Puts an account of `version` events with a snapshot into the data file. It does not use the engine's endpoint, which
/// takes most of a minute for 100,000 rows. Each row is equal to one that an append writes.
fn fill(data: &Path, key: &AggregateKey, version: u64) {
    const AT_ONCE: usize = 10_000;
    let database = Database::new(&data.to_string_lossy()).unwrap();
    let occurred_at = now();
    let event = |seq_num: u64, event_type: &str, data| {
        let event = RecordedEvent {
            seq_num,
            event_id: Ulid::from_parts(0, 0),
            event_type: event_type.to_owned(),
            event_version: 1,
            data: Json::of(&data).unwrap(),
            meta: Meta::default(),
            occurred_at,
            message_seq: 0,
            message_epoch: 1,
            together: Vec::new(),
        };
        row(EventItem::new(key, &event, 1, false))
    };
    let opened = event(1, "AccountOpened", json!({"id": key.id}));
    let payment = event(2, "TransactionAccepted", json!({"desc": "payment", "amount": 1}));
    let numbers: Vec<_> = (1..=version).collect();
    for some in numbers.chunks(AT_ONCE) {
        let numbered = |&number: &u64| {
            let id = Ulid::from_parts(number, 0);
            let mut row = if number == 1 { opened.clone() } else { payment.clone() };
            row.insert("seqNum".into(), AttributeValue::N(number.to_string()));
            row.insert("sk".into(), AttributeValue::S(keys::event_sk(number)));
            row.insert("eventId".into(), AttributeValue::S(id.to_string()));
            row.insert("gsi1sk".into(), AttributeValue::S(keys::gsi1sk(id)));
            row
        };
        database.import_items(TABLE, some.iter().map(numbered).collect(), ImportOptions::default()).unwrap();
    }
    // The snapshot is behind by some events, as when a snapshot is taken every hundred events.
    let last_seq_num = version - 40;
    let state = json!({
        "id": key.id, "ownerFirst": "", "ownerLast": "", "balance": last_seq_num - 1, "minimumBalance": -1000,
    });
    let snapshot = SnapshotItem {
        pk: keys::pk(key),
        sk: keys::SNAPSHOT.to_owned(),
        state: StoredText::Text(state.to_string()),
        last_seq_num,
        message_seq: 0,
        state_version: 1,
        taken_at: "2030-01-01T00:00:00.000Z".to_owned(),
        ttl: None,
    };
    database.import_items(TABLE, vec![row(snapshot)], ImportOptions::default()).unwrap();
}

/// A row as the engine has it.
fn row(item: impl serde::Serialize) -> dynoxide::Item {
    serde_json::from_value(notation(&serde_dynamo::to_item(item).unwrap())).unwrap()
}

#[tokio::test]
async fn load_of_10_000_events_costs_as_much_as_a_load_of_100() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let table = TestTable::over(LocalDynamoDb::start(Some(&data), listener).unwrap(), settings()).await;
    let mut costs = Vec::new();
    for version in [100, 10_000] {
        let account = Subject::shipped("account", &format!("{version:06}"));
        fill(&data, &account.key, version);
        table.proxy.take_calls();
        let loaded = account.load(&table.store()).await;
        assert_eq!((loaded.version(), &state(&loaded)["balance"]), (version, &json!(version - 1)));
        let mut cost: Vec<_> =
            table.proxy.take_calls().into_iter().map(|call| (call.operation, call.table_units.to_string())).collect();
        cost.sort();
        costs.push(cost);
    }
    let calls: Vec<_> = costs[0].iter().map(|(operation, _)| operation).collect();
    assert_eq!(calls, ["GetItem", "Query", "Query"]);
    assert_eq!(costs[0], costs[1]);
}
