//! The rows that an append writes, and the appends that fail without a write.

use aws_sdk_dynamodb::types::AttributeValue;
use daybook_decider::{Caller, Decided, DecisionInput, Meta};
use daybook_event_store::limits::{self, MAX_ITEM, MAX_TRANSACTION, TooLarge};
use daybook_event_store::{StoreError, StoreSettings, TransactError};
use daybook_table::keys;
use daybook_test_support::clock::{next_input, now};
use daybook_test_support::notebook::Notebook;
use daybook_test_support::row::{Item, notation, number, text};
use daybook_test_support::table::{TestTable, settings};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;
use ulid::Ulid;

use crate::support::{Subject, Write, ledger, state};

#[tokio::test]
async fn events_are_numbered_from_one_without_a_gap() {
    let table = TestTable::new().await;
    let store = table.store();
    let account = ledger(&store, "1", 1).await;
    for version in [2, 5, 104, 105] {
        ledger(&store, "1", version).await;
        let rows = table.rows(&account.key, keys::EVENT_PREFIX).await;
        let numbers: Vec<_> = rows.iter().map(|row| number(row, "seqNum")).collect();
        assert_eq!(numbers, (1..=version).collect::<Vec<_>>());
        assert!(rows.iter().all(|row| text(row, "sk") == keys::event_sk(number(row, "seqNum"))));
    }
}

#[tokio::test]
async fn metadata_contains_the_version_and_time_of_the_last_event() {
    let table = TestTable::new().await;
    let store = table.store();
    let todo = Subject::shipped("todo", "1");
    todo.command(&store, "CreateTodo", json!({"title": "A", "message": ""})).await;
    for title in ["B", "C", "D"] {
        todo.command(&store, "UpdateTodo", json!({"title": title, "message": ""})).await;
        let rows = table.rows(&todo.key, keys::EVENT_PREFIX).await;
        let (first, last) = (rows.first().unwrap(), rows.last().unwrap());
        let metadata = todo.metadata(&table).await;
        assert_eq!(metadata["currentSeqNum"], last["seqNum"]);
        assert_eq!(metadata["messageSeq"], last["messageSeq"]);
        assert_eq!(metadata["updatedAt"], last["occurredAt"]);
        assert_eq!(metadata["createdAt"], first["occurredAt"]);
        assert!(text(&metadata, "createdAt") < text(&metadata, "updatedAt"));
    }
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "a list of rows, each with all its attributes")]
async fn appended_rows_match_the_specified_table_format() {
    let table = TestTable::new().await;
    let store = table.store();
    let order = Subject::shipped("order", "o-1");
    let input = DecisionInput::new(
        "2026-03-04T05:06:07.089Z".parse().unwrap(),
        Ulid::from_parts(1_772_600_767_089, 7),
        Meta {
            actor: Some("arn:aws:iam::1:user/alice".into()),
            source_ip: Some("192.0.2.1".into()),
            correlation_id: Some("c-1".into()),
            causation_id: Some("c-0".into()),
            traceparent: Some("00-1-2-01".into()),
            trace_header: Some("Root=1-2-3".into()),
        },
        Caller::anonymous(),
        1,
    );
    let place = json!({"customerId": "alice", "items": [{"productId": "coffee", "quantity": 2}], "total": 4500});
    order.command_under(&input, &store, "PlaceOrder", place).await;

    let event_id = Ulid::from_parts(1_772_600_767_089, 7).to_string();
    let message_id = Ulid::from_parts(1_772_600_767_089, 8).to_string();
    let mut rows = table.rows(&order.key, "").await;
    assert_eq!(rows.len(), 3);
    let mut of_kind = |prefix: &str| {
        let at = rows.iter().position(|row| text(row, "sk").starts_with(prefix)).unwrap();
        rows.swap_remove(at)
    };
    assert_eq!(
        notation(&of_kind("#METADATA")),
        json!({
            "pk": {"S": "AGGREGATE#order#o-1"},
            "sk": {"S": "#METADATA"},
            "aggregateType": {"S": "order"},
            "aggregateId": {"S": "o-1"},
            "currentSeqNum": {"N": "1"},
            "messageSeq": {"N": "1"},
            "createdAt": {"S": "2026-03-04T05:06:07.089Z"},
            "updatedAt": {"S": "2026-03-04T05:06:07.089Z"},
        })
    );
    let mut event = notation(&of_kind("EVENT#"));
    expect_checksum(&mut event);
    assert_eq!(
        event,
        json!({
            "pk": {"S": "AGGREGATE#order#o-1"},
            "sk": {"S": "EVENT#000000000001"},
            "seqNum": {"N": "1"},
            "eventId": {"S": event_id},
            "eventType": {"S": "OrderPlaced"},
            "eventVersion": {"N": "3"},
            "data": {"S": r#"{"id":"o-1","customerId":"alice","items":[{"productId":"coffee","quantity":2}],"total":4500}"#},
            "meta": {"M": {
                "actor": {"S": "arn:aws:iam::1:user/alice"},
                "sourceIp": {"S": "192.0.2.1"},
                "correlationId": {"S": "c-1"},
                "causationId": {"S": "c-0"},
                "traceparent": {"S": "00-1-2-01"},
                "traceHeader": {"S": "Root=1-2-3"},
            }},
            "occurredAt": {"S": "2026-03-04T05:06:07.089Z"},
            "messageSeq": {"N": "1"},
            "gsi1pk": {"S": "EVENT_TYPE#OrderPlaced"},
            "gsi1sk": {"S": format!("EVENT#{event_id}")},
        })
    );
    let mut outbox = notation(&of_kind("OUTBOX#"));
    expect_checksum(&mut outbox);
    let detail: Value = serde_json::from_str(outbox["detail"]["S"].take().as_str().unwrap()).unwrap();
    assert_eq!(
        outbox,
        json!({
            "pk": {"S": "AGGREGATE#order#o-1"},
            "sk": {"S": "OUTBOX#000000000001#0"},
            "messageId": {"S": message_id},
            "messageType": {"S": "OrderPlaced"},
            "messageSeq": {"N": "1"},
            "detail": {"S": null},
            "occurredAt": {"S": "2026-03-04T05:06:07.089Z"},
            "seqNum": {"N": "1"},
            // Seven days later.
            "ttl": {"N": "1773205567"},
            "traceHeader": {"S": "Root=1-2-3"},
        })
    );
    assert_eq!(
        detail,
        json!({
            "metadata": {
                "messageId": message_id, "aggregateType": "order", "aggregateId": "o-1", "seqNum": 1, "messageSeq": 1,
                "epoch": 1, "eventId": event_id, "eventVersion": 3, "occurredAt": "2026-03-04T05:06:07.089Z",
                "correlationId": "c-1", "causationId": "c-0", "actor": "arn:aws:iam::1:user/alice",
                "traceparent": "00-1-2-01", "traceHeader": "Root=1-2-3",
            },
            "data": {
                "id": "o-1", "customerId": "alice", "items": [{"productId": "coffee", "quantity": 2}], "total": 4500,
                "status": "placed",
            },
        })
    );
}

/// Removes the checksum, of eight bytes in base64.
#[track_caller]
pub(crate) fn expect_checksum(row: &mut Value) {
    let checksum = row.as_object_mut().unwrap().remove("sum").unwrap();
    assert_eq!(checksum["B"].as_str().map(str::len), Some(12), "{checksum}");
}

#[tokio::test]
async fn outbox_row_ttl_follows_the_setting() {
    let table = TestTable::new().await;
    let store = table.store_with(StoreSettings { outbox_ttl_days: 30, ..settings() });
    let todo = Subject::shipped("todo", "1");
    let input = next_input();
    todo.command_under(&input, &store, "CreateTodo", json!({"title": "A", "message": ""})).await;
    let rows = table.rows(&todo.key, keys::OUTBOX_PREFIX).await;
    assert_eq!(number(&rows[0], "ttl"), u64::try_from(input.now.as_second()).unwrap() + 30 * 24 * 60 * 60);
}

#[tokio::test]
async fn a_deleted_aggregate_is_marked_in_its_metadata() {
    let table = TestTable::new().await;
    let store = table.store();
    let todo = Subject::shipped("todo", "1");
    todo.command(&store, "CreateTodo", json!({"title": "A", "message": ""})).await;
    assert!(!todo.metadata(&table).await.contains_key("deleted"));
    todo.command(&store, "DeleteTodo", json!({})).await;
    assert_eq!(todo.metadata(&table).await["deleted"], AttributeValue::Bool(true));
}

#[tokio::test]
async fn messages_are_numbered_without_a_gap_over_many_appends() {
    let table = TestTable::new().await;
    let few = StoreSettings { snapshot_every: 4, ..settings() };
    let notebook = Subject::of::<Notebook>("1");
    let mut store = table.store_with(few.clone());
    for append in 0..20 {
        // Numbering continues from a cached state, from events alone, and from a snapshot with events.
        if append % 3 == 0 {
            store = table.store_with(few.clone());
        }
        if append % 7 == 0 {
            store.take_snapshot(notebook.model(), &notebook.key, now()).await.unwrap();
        }
        let lines: Vec<_> = (0..append % 4 + 1).map(|line| "!".repeat(line * append % 4)).collect();
        let command = if append == 0 { "Start" } else { "Write" };
        notebook.command(&store, command, json!({ "lines": lines })).await;
    }

    let outbox = table.rows(&notebook.key, keys::OUTBOX_PREFIX).await;
    let numbers: Vec<_> = outbox.iter().map(|row| number(row, "messageSeq")).collect();
    assert!(numbers.len() > 20);
    assert_eq!(numbers, (1..).take(numbers.len()).collect::<Vec<_>>());
    for row in &outbox {
        let detail: Value = serde_json::from_str(text(row, "detail")).unwrap();
        assert_eq!(detail["metadata"]["messageSeq"], number(row, "messageSeq"));
        assert_eq!(detail["metadata"]["seqNum"], number(row, "seqNum"));
    }

    // Each event contains the number of messages up to it.
    for event in table.rows(&notebook.key, keys::EVENT_PREFIX).await {
        let count = outbox.iter().filter(|row| number(row, "seqNum") <= number(&event, "seqNum")).count();
        assert_eq!(number(&event, "messageSeq"), count as u64);
    }
    assert_eq!(number(&notebook.metadata(&table).await, "messageSeq"), outbox.len() as u64);
}

#[tokio::test]
async fn snapshots_are_due_exactly_at_multiples_of_snapshot_every() {
    let table = TestTable::new().await;
    let every_third = StoreSettings { snapshot_every: 3, ..settings() };
    let store = table.store_with(every_third.clone());
    let account = ledger(&store, "1", 2).await;
    // Appends of one event, and appends that cross one multiple, cross three, and end on one.
    for version in [3, 4, 7, 16, 18] {
        ledger(&store, "1", version).await;
    }
    let due = |rows: Vec<Item>| -> Vec<u64> {
        let due = |row: &&Item| row.get("snapshotDue") == Some(&AttributeValue::Bool(true));
        rows.iter().filter(due).map(|row| number(row, "seqNum")).collect()
    };
    let rows = table.rows(&account.key, keys::EVENT_PREFIX).await;
    assert_eq!(rows.iter().filter(|row| row.contains_key("snapshotDue")).count(), 6);
    assert_eq!(due(rows), [3, 6, 9, 12, 15, 18]);

    let diary = Subject::of::<Notebook<1, true>>("1");
    diary.command(&store, "Start", json!({ "lines": vec!["A"; 10] })).await;
    assert_eq!(due(table.rows(&diary.key, keys::EVENT_PREFIX).await), [0; 0]);
}

#[tokio::test]
async fn decision_without_events_appends_nothing() {
    let table = TestTable::new().await;
    let store = table.store();
    let account = ledger(&store, "1", 3).await;
    table.proxy.take_calls();
    let before = store.cached(&account.key).unwrap();
    let after = account.commands(&store, &[]).await;
    assert_eq!((after.version(), state(&after)), (3, state(&before)));
    assert_eq!(table.operations(), ["Query"]);
}

#[tokio::test]
async fn append_with_a_wrong_version_never_begins_a_stream() {
    let table = TestTable::new().await;
    let store = table.store();
    let account = ledger(&store, "1", 3).await;
    // The cached state is at a version that the table does not have.
    for row in table.rows(&account.key, "").await {
        table.delete(&account.key, text(&row, "sk")).await;
    }
    let error = payment(&account).send(&store).await.unwrap_err();
    assert!(matches!(error, TransactError::Store(StoreError::Corrupt { .. })), "{error:?}");
    assert_eq!(table.rows(&account.key, "").await, []);
}

#[tokio::test]
async fn event_beyond_the_metadata_is_corrupt_not_a_conflict() {
    let table = TestTable::new().await;
    let store = table.store();
    let account = ledger(&store, "1", 3).await;
    let mut stray = table.row(&account.key, &keys::event_sk(3)).await.unwrap();
    stray.insert("sk".into(), AttributeValue::S(keys::event_sk(4)));
    stray.insert("seqNum".into(), AttributeValue::N("4".into()));
    table.put(stray.clone()).await;

    let error = payment(&account).send(&store).await.unwrap_err();
    let TransactError::Store(StoreError::Corrupt { item, source }) = error else { panic!("{error:?}") };
    let expected = "row 1 of the append exists, but the metadata is at the expected version";
    assert_eq!((item.as_str(), source.to_string().as_str()), ("account/1", expected));
    assert_eq!(table.row(&account.key, &keys::event_sk(4)).await, Some(stray));
    assert_eq!(number(&account.metadata(&table).await, "currentSeqNum"), 3);
}

#[tokio::test]
async fn append_beyond_a_transaction_limit_is_not_sent() {
    let table = TestTable::new().await;
    let store = table.store();
    let notebook = Subject::of::<Notebook>("1");
    let start = |lines: Vec<String>| notebook.decide(&notebook.unborn(), &[("Start", json!({ "lines": lines }))]);
    let too_large = async |decided: Decided| match notebook.append(&store, |_| decided.clone()).await {
        Err(TransactError::TooLarge { limit, .. }) => limit,
        other => panic!("{other:?}"),
    };
    let item = too_large(start(vec!["A".repeat(MAX_ITEM)])).await;
    assert!(matches!(item, TooLarge::Item { bytes } if bytes > MAX_ITEM));
    // With the metadata, one item too many. A decision fails beyond the limit, so the last row is added afterwards.
    let mut events = start(vec!["A".into(); 99]);
    events.events.push(events.events[98].clone());
    assert_eq!(too_large(events).await, TooLarge::Items { items: 101 });
    let mut messages = start(vec!["!".into(); 49]);
    messages.events.push(messages.events[48].clone());
    messages.messages.push(messages.messages[48].clone());
    assert_eq!(too_large(messages).await, TooLarge::Items { items: 101 });
    // The data alone fits the limit, but the rows with their other attributes do not.
    let data = MAX_TRANSACTION / 11 - r#"{"text":""}"#.len();
    assert!(matches!(too_large(start(vec!["A".repeat(data); 11])).await, TooLarge::Transaction { .. }));
    assert!(!table.operations().contains(&"TransactWriteItems".to_owned()));
    assert!(store.cached(&notebook.key).is_none());
}

#[tokio::test]
async fn append_at_a_transaction_limit_succeeds() {
    let table = TestTable::new().await;
    let store = table.store();
    let most = Subject::of::<Notebook>("most");
    assert_eq!(most.command(&store, "Start", json!({ "lines": vec!["A"; 99] })).await.version(), 99);

    // The limit is computed as DynamoDB computes it: an item at the limit is accepted, one byte more is rejected.
    let probe = Subject::of::<Notebook>("probe");
    probe.command(&store, "Start", json!({ "lines": [""] })).await;
    let envelope = limits::item_size(&table.row(&probe.key, &keys::event_sk(1)).await.unwrap());
    let large = Subject::of::<Notebook>("large");
    let start = |bytes| large.decide(&large.unborn(), &[("Start", json!({ "lines": ["A".repeat(bytes)] }))]);
    let room = MAX_ITEM - envelope;
    let error = large.append(&store, |_| start(room + 1)).await.unwrap_err();
    assert!(
        matches!(error, TransactError::TooLarge { limit: TooLarge::Item { bytes }, .. } if bytes == MAX_ITEM + 1),
        "{error:?}"
    );
    large.append(&store, |_| start(room)).await.unwrap();
    let row = table.row(&large.key, &keys::event_sk(1)).await.unwrap();
    assert_eq!(limits::item_size(&row), MAX_ITEM);
}

#[tokio::test]
async fn transaction_size_is_computed_to_the_byte() {
    const LINES: usize = 11;
    let table = TestTable::new().await;
    let store = table.store();
    let size =
        async |subject: &Subject| table.rows(&subject.key, "").await.iter().map(limits::item_size).sum::<usize>();
    let probe = Subject::of::<Notebook>("probe");
    probe.command(&store, "Start", json!({ "lines": vec![""; LINES] })).await;
    let room = MAX_TRANSACTION - size(&probe).await;

    let large = Subject::of::<Notebook>("large");
    let start = |bytes: usize| {
        let mut lines = vec!["A".repeat(bytes / LINES); LINES - 1];
        lines.push("A".repeat(bytes - bytes / LINES * (LINES - 1)));
        large.decide(&large.unborn(), &[("Start", json!({ "lines": lines }))])
    };
    let error = large.append(&store, |_| start(room + 1)).await.unwrap_err();
    let TransactError::TooLarge { limit: TooLarge::Transaction { bytes }, .. } = error else { panic!("{error:?}") };
    assert_eq!(bytes, MAX_TRANSACTION + 1);
    large.append(&store, |_| start(room)).await.unwrap();
    assert_eq!(size(&large).await, MAX_TRANSACTION);
}

#[tokio::test]
async fn successful_append_is_cached_and_failed_one_is_not() {
    let table = TestTable::new().await;
    let store = table.store();
    let account = Subject::shipped("account", "1");
    assert!(store.cached(&account.key).is_none());
    account.command(&store, "OpenAccount", json!({})).await;
    assert_eq!(store.cached(&account.key).unwrap().version(), 1);
    ledger(&table.store(), "1", 3).await;
    // After the conflict, there is no time to read the newer state.
    let error = payment(&account).send_until(&store, Instant::now()).await.unwrap_err();
    assert!(matches!(error, TransactError::Contended), "{error:?}");
    assert_eq!(store.cached(&account.key).unwrap().version(), 1);
}

#[tokio::test]
async fn times_and_ids_never_run_backwards_with_different_clocks() {
    let table = TestTable::new().await;
    let todo = Subject::shipped("todo", "1");
    let at = |milliseconds: i64| {
        DecisionInput::new(
            Timestamp::from_millisecond(milliseconds).unwrap(),
            Ulid::from_parts(u64::try_from(milliseconds).unwrap(), fastrand::u128(..)),
            Meta::default(),
            Caller::anonymous(),
            1,
        )
    };
    let first = table.store();
    todo.command_under(&at(2_000_000), &first, "CreateTodo", json!({"title": "first", "message": ""})).await;
    // Decisions with a clock that is behind, on a state from events, from a snapshot of the last event, and from the
    // cache.
    let cold = [table.store(), table.store(), first];
    for (store, title) in cold.iter().zip(["A", "B", "C"]) {
        if title == "B" {
            store.take_snapshot(todo.model(), &todo.key, now()).await.unwrap();
        }
        let store = if title == "B" { &table.store() } else { store };
        todo.load(store).await;
        todo.command_under(&at(1_000_000), store, "UpdateTodo", json!({"title": title, "message": ""})).await;
    }
    let rows = table.rows(&todo.key, keys::EVENT_PREFIX).await;
    let times: Vec<_> = rows.iter().map(|row| text(row, "occurredAt")).collect();
    assert_eq!(times, ["1970-01-01T00:33:20.000Z"; 4]);
    let ids: Vec<_> = rows.iter().map(|row| text(row, "eventId")).collect();
    assert!(ids.is_sorted_by(|one, next| one < next), "{ids:?}");
    // The ids of messages are not used again either.
    let messages = table.rows(&todo.key, keys::OUTBOX_PREFIX).await;
    let mut all: Vec<_> = messages.iter().map(|row| text(row, "messageId")).chain(ids).collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 8);
}

fn payment(account: &Subject) -> Write<'_> {
    Write::new(account, "RecordTransaction", json!({"desc": "payment", "amount": 1}))
}
