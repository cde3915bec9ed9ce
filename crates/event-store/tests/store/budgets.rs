//! The cost of commands and loads, in calls and capacity units.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;

use daybook_decider::{Json, Meta, RecordedEvent};
use daybook_event_store::EventStore;
use daybook_event_store::limits::item_size;
use daybook_local_aws::dynamodb::LocalDynamoDb;
use daybook_table::{AggregateKey, EventItem, SnapshotItem, StoredText, keys};
use daybook_test_support::clock::now;
use daybook_test_support::row::notation;
use daybook_test_support::table::{TABLE, TestTable, settings};
use dynoxide::{AttributeValue, Database, ImportOptions};
use serde_json::json;
use ulid::Ulid;

use crate::support::{Subject, ledger, state};

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
async fn command_on_a_cold_cache_makes_two_reads_and_the_append() {
    let table = TestTable::new().await;
    let every = settings().snapshot_every;
    let account = ledger(&table.store(), "1", every).await;
    // Without a snapshot, with one, and with the maximum number of events after it.
    for (version, with_snapshot) in [(every, false), (every, true), (2 * every, true)] {
        ledger(&table.store(), "1", version).await;
        if with_snapshot && version == every {
            table.store().take_snapshot(account.model(), &account.key, now()).await.unwrap();
        }
        let cold = table.store();
        table.proxy.take_calls();
        let before = account.load(&cold).await;
        assert_eq!(before.version(), version);
        assert_eq!(table.operations(), ["GetItem", "Query"]);
    }
    let cold = table.store();
    table.proxy.take_calls();
    account.command(&cold, "RecordTransaction", json!({"desc": "payment", "amount": 1})).await;
    assert_eq!(table.operations(), ["GetItem", "Query", "TransactWriteItems"]);
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
        pk: key.pk(),
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
async fn load_of_100_000_events_costs_as_much_as_a_load_of_100() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let table = TestTable::over(LocalDynamoDb::start(Some(&data), listener).unwrap(), settings()).await;
    let mut costs = Vec::new();
    for version in [100, 100_000] {
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
    assert_eq!(costs[0].iter().map(|(operation, _)| operation).collect::<Vec<_>>(), ["GetItem", "Query"]);
    assert_eq!(costs[0], costs[1]);
}
