//! The import of events of another table.

use daybook_admin::{AdminCalls, ImportBatch, ImportWrite};
use daybook_decider::{Model, RecordedEvent};
use daybook_event_store::{AppendError, EventStore};
use daybook_table::{attributes, keys};
use daybook_test_support::clock::now;
use daybook_test_support::fault_proxy::InjectedFault;
use daybook_test_support::row::{Item, number, text};
use daybook_test_support::table::TestTable;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use daybook_test_support::subject::{Subject, large_ledger, ledger, state};

const SECONDS_A_DAY: i64 = 24 * 60 * 60;

async fn events(store: &EventStore, subject: &Subject) -> Vec<RecordedEvent> {
    let mut events: Vec<RecordedEvent> = Vec::new();
    loop {
        let page = store.events(&subject.key, events.len() as u64, 1000).await.unwrap();
        events.extend(page.items);
        if !page.more {
            return events;
        }
    }
}

/// Imports events as one aggregate. Returns the versions at which its transactions ended.
async fn import(
    store: &EventStore,
    subject: &Subject,
    events: &[RecordedEvent],
    options: ImportWrite,
) -> Result<Vec<u64>, AppendError> {
    let model = subject.model();
    let mut batch = store.admin().import(model, &subject.key, 0, options);
    let mut folded = model.before_first_event();
    let mut ends = Vec::new();
    for event in events {
        let announced = model.announced(&folded, &subject.key.id, event, 1).unwrap();
        let messages = if options.publish { announced } else { Vec::new() };
        if !batch.add(event, &messages)? {
            batch.send(&folded).await?;
            ends.push(batch.before());
            assert!(batch.add(event, &messages)?);
        }
        folded = model.fold(folded, std::slice::from_ref(event)).unwrap();
    }
    batch.send(&folded).await?;
    ends.push(batch.before());
    Ok(ends)
}

fn options(publish: bool) -> ImportWrite {
    ImportWrite { publish, now: now() }
}

async fn findings(store: &EventStore, subject: &Subject, now: Timestamp) -> Vec<String> {
    let verified = store.admin().verify(subject.model(), &subject.key, now).await.unwrap();
    verified.findings.iter().map(ToString::to_string).collect()
}

/// The rows of an aggregate without what depends on the transaction that wrote them.
async fn rows(table: &TestTable, subject: &Subject) -> Vec<Item> {
    let mut rows = table.rows(&subject.key, "").await;
    for row in &mut rows {
        row.retain(|name, _| !["appendEnd", attributes::TTL, "sum"].contains(&name.as_str()));
    }
    rows
}

#[tokio::test]
async fn imported_rows_are_those_of_the_appends() {
    let (from, to) = (TestTable::new().await, TestTable::new().await);
    let (source, target) = (from.store(), to.store());
    let todo = Subject::shipped("todo", "1");
    for (command, title) in [("CreateTodo", "a"), ("UpdateTodo", "b"), ("UpdateTodo", "c")] {
        todo.command(&source, command, json!({"title": title, "message": ""})).await;
    }
    todo.command(&source, "DeleteTodo", json!({})).await;
    let events = events(&source, &todo).await;
    assert_eq!(import(&target, &todo, &events, options(true)).await.unwrap(), [4]);
    assert_eq!(rows(&to, &todo).await, rows(&from, &todo).await);
    assert_eq!(findings(&target, &todo, now()).await, [""; 0]);
    assert_eq!(state(&todo.load(&target).await), state(&todo.load(&source).await));
}

#[tokio::test]
async fn long_stream_is_imported_in_transactions_within_the_limits() {
    let (from, to) = (TestTable::new().await, TestTable::new().await);
    let (source, target) = (from.store(), to.store());
    let account = ledger(&source, "1", 250).await;
    let small = events(&source, &account).await;
    assert_eq!(import(&target, &account, &small, options(false)).await.unwrap(), [99, 198, 250]);
    assert_eq!(findings(&target, &account, now()).await, [""; 0]);
    let loaded = account.rebuild(&target).await;
    assert_eq!((loaded.version(), state(&loaded)), (250, state(&account.rebuild(&source).await)));

    let large = large_ledger(&source, "2", 20).await;
    let ends = import(&target, &large, &events(&source, &large).await, options(false)).await.unwrap();
    assert_eq!(ends, [14, 20]);
    assert_eq!(findings(&target, &large, now()).await, [""; 0]);

    // The next append continues the numbers.
    let after = account.command(&target, "RecordTransaction", json!({"desc": "A", "amount": 1})).await;
    assert_eq!((after.version(), findings(&target, &account, now()).await), (251, vec![]));
}

#[tokio::test]
async fn event_that_fits_no_transaction_is_an_error() {
    let table = TestTable::new().await;
    let store = table.store();
    let account = ledger(&store, "1", 2).await;
    let events = events(&store, &account).await;
    let text = format!(r#"{{"desc":"{}","amount":1}}"#, "x".repeat(400 * 1024));
    let large = RecordedEvent { data: daybook_decider::Json::parse(text).unwrap(), ..events[1].clone() };
    let mut batch = store.admin().import(account.model(), &account.key, 2, options(true));
    assert!(matches!(batch.add(&large, &[]), Err(AppendError::TooLarge(_))));
    assert!(batch.is_empty());
}

#[tokio::test]
async fn messages_of_recent_events_that_were_not_published_are_not_missing() {
    let (from, to) = (TestTable::new().await, TestTable::new().await);
    let (source, target) = (from.store(), to.store());
    let todo = Subject::shipped("todo", "1");
    todo.command(&source, "CreateTodo", json!({"title": "a", "message": ""})).await;
    todo.command(&source, "UpdateTodo", json!({"title": "b", "message": ""})).await;
    import(&target, &todo, &events(&source, &todo).await, options(false)).await.unwrap();
    assert_eq!(to.rows(&todo.key, keys::OUTBOX_PREFIX).await, [] as [Item; 0]);
    assert_eq!(findings(&target, &todo, now()).await, [""; 0]);

    // Later appends publish, and continue the numbers of the messages.
    todo.command(&target, "UpdateTodo", json!({"title": "c", "message": ""})).await;
    let outbox = to.rows(&todo.key, keys::OUTBOX_PREFIX).await;
    assert_eq!(outbox.iter().map(|row| number(row, attributes::MESSAGE_SEQ)).collect::<Vec<_>>(), [3]);
    assert_eq!(findings(&target, &todo, now()).await, [""; 0]);
    to.delete(&todo.key, text(&outbox[0], "sk")).await;
    let missing = "todo/1 OUTBOX#000000000003#0 missing: message 3 is missing, and its row cannot have expired yet";
    assert_eq!(findings(&target, &todo, now()).await, [missing]);
    to.put(outbox[0].clone()).await;

    // An outbox row of an event that was not published is a finding.
    to.put(from.row(&todo.key, "OUTBOX#000000000001#0").await.unwrap()).await;
    let found = findings(&target, &todo, now()).await;
    assert_eq!(found, ["todo/1 OUTBOX#000000000001#0 unannounced: event 1 was imported without its messages"]);
}

#[tokio::test]
async fn outbox_rows_of_old_events_expire_from_the_import_on() {
    let (from, to) = (TestTable::new().await, TestTable::new().await);
    let (source, target) = (from.store(), to.store());
    let todo = Subject::shipped("todo", "1");
    todo.command(&source, "CreateTodo", json!({"title": "a", "message": ""})).await;
    let later = now() + SignedDuration::from_hours(24 * 365);
    let options = ImportWrite { publish: true, now: later };
    import(&target, &todo, &events(&source, &todo).await, options).await.unwrap();
    let row = to.row(&todo.key, "OUTBOX#000000000001#0").await.unwrap();
    assert_eq!(number(&row, attributes::TTL) as i64, later.as_second() + 7 * SECONDS_A_DAY);
}

#[tokio::test]
async fn transaction_with_an_unknown_outcome_is_written_once() {
    let (from, to) = (TestTable::new().await, TestTable::new().await);
    let (source, target) = (from.store(), to.store());
    let account = ledger(&source, "1", 150).await;
    let events = events(&source, &account).await;
    for fault in [
        InjectedFault::BreakAfter,
        InjectedFault::BreakBefore,
        InjectedFault::Refuse { status: 400, code: "ThrottlingException" },
        InjectedFault::Refuse { status: 500, code: "InternalServerError" },
    ] {
        to.proxy.fail_next("TransactWriteItems", fault);
    }
    assert_eq!(import(&target, &account, &events, options(false)).await.unwrap(), [99, 150]);
    assert_eq!(findings(&target, &account, now()).await, [""; 0]);
    assert_eq!(self::events(&target, &account).await, events);
}

#[tokio::test]
async fn import_never_writes_into_another_aggregate() {
    let (from, to) = (TestTable::new().await, TestTable::new().await);
    let (source, target) = (from.store(), to.store());
    let account = ledger(&source, "1", 3).await;
    ledger(&target, "1", 2).await;
    let before = to.rows(&account.key, "").await;
    let error = import(&target, &account, &events(&source, &account).await, options(true)).await.unwrap_err();
    assert!(matches!(error, AppendError::Conflict { actual: 2 }), "{error:?}");
    assert_eq!(to.rows(&account.key, "").await, before);

    let model: &dyn Model = account.model();
    let mut batch: ImportBatch<'_> = target.admin().import(model, &account.key, 1, options(true));
    batch.add(&events(&source, &account).await[1], &[]).unwrap();
    let error = batch.send(&account.load_at(&source, 2).await.folded).await.unwrap_err();
    assert!(matches!(error, AppendError::Conflict { actual: 2 }), "{error:?}");
}
