//! Verification and correction of deadlines.

use daybook_admin::{AdminCalls, Corrected, Derived};
use daybook_decider::{Caller, DeadlineChanges, DecisionInput, Due};
use daybook_event_store::DeadlineMark;
use daybook_table::{DeadlineCause, DeadlineItem, DeadlineState, keys};
use daybook_test_support::clock::{next_input, now};
use daybook_test_support::fault_proxy::RecordedCall;
use daybook_test_support::row::{sealed, text};
use daybook_test_support::subject::Subject;
use daybook_test_support::table::TestTable;
use daybook_test_support::timer::Timer;
use serde_json::json;
use ulid::Ulid;

use crate::verify::{lines, n, s, verify};

const ONE: &str = "2031-01-01T10:00:00.000Z";

/// A timer with the deadlines `a` and `b`.
async fn timer(table: &TestTable) -> Subject {
    let timer = Subject::of::<Timer>("1");
    timer.command(&table.direct_store(), "Start", json!({"at": {"a": ONE, "b": ONE}})).await;
    timer
}

/// Checks the findings after a change of the row of `b`, with a checksum that matches.
async fn expect(changes: &[(&str, aws_sdk_dynamodb::types::AttributeValue)], expected: &[&str]) {
    let table = TestTable::new().await;
    let timer = timer(&table).await;
    let mut row = table.row(&timer.key, "DEADLINE#b").await.unwrap();
    row.extend(changes.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    table.put(sealed(row)).await;
    assert_eq!(lines(&verify(&table.store(), &timer).await), expected);
}

#[tokio::test]
async fn verify_of_intact_deadlines_finds_nothing_in_any_of_their_states() {
    let table = TestTable::new().await;
    let (store, timer) = (table.store(), timer(&table).await);
    for (name, mark) in [("a", DeadlineMark::Fired), ("b", DeadlineMark::Failed("it panics"))] {
        assert_eq!(lines(&verify(&store, &timer).await), [""; 0]);
        let stored = store.deadline(&timer.key, name).await.unwrap().unwrap();
        assert!(store.mark_deadline(&stored, mark).await.unwrap());
    }
    table.proxy.take_calls();
    let verified = verify(&store, &timer).await;
    assert_eq!((verified.rows, lines(&verified)), (5, vec![]));
    assert_eq!(table.operations(), ["Query", "Query"]);
    timer.command(&table.store(), "Stop", json!({})).await;
    assert_eq!(lines(&verify(&store, &timer).await), [""; 0]);
}

#[tokio::test]
async fn each_wrong_attribute_of_a_deadline_is_reported() {
    let other = "2031-01-01T11:00:00.000Z";
    let differs = |what: &str| format!("DEADLINE#b differs: {what}");
    expect(&[("due", s(other)), ("gsi1sk", s(other))], &[&differs(&format!("due is {other}, expected {ONE}"))]).await;
    expect(&[("gsi1sk", s(other))], &[&differs(&format!("gsi1sk is {other}, expected {ONE}"))]).await;
    expect(&[("gsi1pk", s("DEADLINE#7"))], &[&differs("gsi1pk is DEADLINE#7, expected DEADLINE")]).await;
    expect(&[("seqNum", n(2))], &[&differs("seqNum is 2, expected 1 to 1, the last event")]).await;
    let table = TestTable::new().await;
    let timer = timer(&table).await;
    let row = table.row(&timer.key, "DEADLINE#b").await.unwrap();
    let id = text(&row, "eventId").to_owned();
    expect_event_id(&table, &timer, &id).await;
    for (name, value) in [("correlationId", s("other")), ("error", s("x")), ("due", s("x")), ("more", n(1))] {
        let mut changed = row.clone();
        changed.insert(name.to_owned(), value);
        table.put(changed).await;
        let found = lines(&verify(&table.store(), &timer).await);
        let is_reported =
            |line: &String| line.starts_with("DEADLINE#b changed") || line.starts_with("DEADLINE#b unreadable");
        assert!(found.len() == 1 && is_reported(&found[0]), "{name}: {found:?}");
    }
}

async fn expect_event_id(table: &TestTable, timer: &Subject, id: &str) {
    let row = table.row(&timer.key, "DEADLINE#b").await.unwrap();
    let mut other = row.clone();
    other.insert("eventId".to_owned(), s(&Ulid::nil().to_string()));
    table.put(sealed(other)).await;
    let expected = format!("DEADLINE#b differs: eventId is {}, expected {id}", Ulid::nil());
    assert_eq!(lines(&verify(&table.store(), timer).await), [expected]);
    table.put(row).await;
}

#[tokio::test]
async fn missing_and_surplus_deadlines_are_reported_and_corrected() {
    let table = TestTable::new().await;
    let (store, timer) = (table.store(), timer(&table).await);
    table.delete(&timer.key, "DEADLINE#a").await;
    let cause = DeadlineCause { seq_num: 1, event_id: Ulid::nil(), correlation_id: None };
    let row = DeadlineItem::new(&timer.key, ("b", "2032-01-01T00:00:00Z".parse().unwrap()), cause.clone(), 1, now());
    table.put(sealed(serde_dynamo::to_item(row).unwrap())).await;
    let row = DeadlineItem::new(&timer.key, ("c", ONE.parse().unwrap()), cause, 1, now());
    table.put(sealed(serde_dynamo::to_item(row).unwrap())).await;
    let found = lines(&verify(&store, &timer).await);
    assert_eq!(
        found[0],
        "DEADLINE#a deadline: the state has it, due 2031-01-01T10:00:00.000Z, and there is no row of it"
    );
    assert!(found.contains(&"DEADLINE#c deadline: it is not in the state".to_owned()), "{found:?}");
    assert!(found.iter().any(|line| line.starts_with("DEADLINE#b differs: due is 2032-01-01")), "{found:?}");

    let due = ONE.parse().unwrap();
    let set = ["a", "b"].map(|name| (name.to_owned(), Due::At(due))).to_vec();
    let expected =
        Corrected { deadlines: DeadlineChanges { set, dropped: vec!["c".to_owned()] }, ..Corrected::default() };
    let correct = async |writes| {
        store.admin().correct(timer.model(), &timer.key, Derived::Deadlines { sends: true }, writes).await.unwrap()
    };
    assert_eq!(correct(false).await, expected);
    assert!(table.row(&timer.key, "DEADLINE#c").await.is_some());
    assert_eq!(correct(true).await, expected);
    assert_eq!(lines(&verify(&store, &timer).await), [""; 0]);
    assert_eq!(correct(true).await, Corrected::default());
}

/// Deadlines of a release that had none, or others.
#[tokio::test]
async fn deadlines_of_a_new_release_are_set_beside_writers() {
    let table = TestTable::new().await;
    let earlier = Subject::of::<Timer<false>>("1");
    earlier.command(&table.store(), "Start", json!({"at": {"a": ONE}})).await;
    let (store, timer) = (table.store(), Subject::of::<Timer>("1"));
    assert_eq!(lines(&verify(&store, &timer).await).len(), 1);
    // An append of the new release writes the difference of its own states alone.
    timer.command(&table.store(), "Set", json!({"at": {"a": ONE, "b": ONE}})).await;
    assert_eq!(table.rows(&timer.key, keys::DEADLINE_PREFIX).await.len(), 1);

    // While it reads, another one appends: its transaction fails, and it reads again.
    let admin = store.admin();
    let mut correction = Box::pin(admin.correct(timer.model(), &timer.key, Derived::Deadlines { sends: true }, true));
    let has_read = |calls: &[RecordedCall]| calls.iter().filter(|call| call.operation == "Query").count() == 2;
    table.proxy.take_calls();
    table.proxy.hold(&mut correction, has_read).await;
    timer.command(&table.direct_store(), "Set", json!({"at": {"c": ONE}})).await;
    correction.await.unwrap();
    let rows = table.rows(&timer.key, keys::DEADLINE_PREFIX).await;
    assert_eq!(rows.iter().map(|row| text(row, "sk")).collect::<Vec<_>>(), ["DEADLINE#c"]);
    assert_eq!(lines(&verify(&store, &timer).await), [""; 0]);

    let corrected = table
        .store()
        .admin()
        .correct(earlier.model(), &timer.key, Derived::Deadlines { sends: true }, true)
        .await
        .unwrap();
    assert_eq!(corrected.deadlines.dropped, ["c"]);
}

/// The row of a dispatch has the time at which it was set.
#[tokio::test]
async fn dispatches_are_compared_by_their_names_and_set_with_or_without_being_sent() {
    let table = TestTable::new().await;
    let (store, process) = (table.store(), Subject::shipped("fulfilment", "1"));
    let input = DecisionInput { caller: Caller::system(), ..next_input() };
    process.command_under(&input, &table.direct_store(), "BeginFulfilment", json!({"total": 4500})).await;
    let (sk, name) = ("DEADLINE#request-payment", "request-payment");
    let mut row = table.row(&process.key, sk).await.unwrap();
    row.extend(["due", "gsi1sk"].map(|attribute| (attribute.to_owned(), s(ONE))));
    table.put(sealed(row)).await;
    assert_eq!(lines(&verify(&store, &process).await), [""; 0]);
    table.delete(&process.key, sk).await;
    let missing = format!("{sk} deadline: the state has it, due at once, and there is no row of it");
    assert_eq!(lines(&verify(&store, &process).await), [missing]);

    let admin = store.admin();
    let correct =
        async |sends| admin.correct(process.model(), &process.key, Derived::Deadlines { sends }, true).await.unwrap();
    let stored = async || store.deadline(&process.key, name).await.unwrap().unwrap().item;
    correct(false).await;
    assert_eq!((stored().await.state(), stored().await.soon), (DeadlineState::Fired, None));
    assert_eq!(correct(false).await, Corrected::default());
    assert_eq!(store.deadline(&process.key, "payment").await.unwrap().unwrap().item.state(), DeadlineState::Pending);
    assert_eq!(lines(&verify(&store, &process).await), [""; 0]);

    table.delete(&process.key, sk).await;
    correct(true).await;
    assert_eq!((stored().await.state(), stored().await.soon), (DeadlineState::Pending, Some(true)));
}
