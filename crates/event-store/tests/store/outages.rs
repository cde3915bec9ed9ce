//! Appends while other writers interfere, or DynamoDB throttles, fails, or does not return the outcome of a call.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use daybook_decider::Decided;
use daybook_event_store::{EventStore, Loaded, SEND_WINDOW, StoreError, TransactError, Transacted};
use daybook_table::keys;
use daybook_test_support::commands::deadline;
use daybook_test_support::fault_proxy::InjectedFault;
use daybook_test_support::row::{number, text};
use daybook_test_support::table::TestTable;
use serde_json::json;
use tokio::time::Instant;

use crate::support::{Subject, Write, first_id, ledger, state};

const APPEND: &str = "TransactWriteItems";

/// The three items are the metadata, the event and its message.
fn cancelled(codes: [&'static str; 3]) -> InjectedFault {
    InjectedFault::Cancel { codes: codes.into() }
}

/// Transient errors after which nothing is written.
fn passing() -> [InjectedFault; 9] {
    let refused = |status, code| InjectedFault::Refuse { status, code };
    [
        cancelled(["TransactionConflict", "None", "None"]),
        cancelled(["None", "TransactionConflict", "TransactionConflict"]),
        cancelled(["None", "ThrottlingError", "None"]),
        cancelled(["None", "None", "ProvisionedThroughputExceeded"]),
        refused(400, "ThrottlingException"),
        refused(400, "ProvisionedThroughputExceededException"),
        refused(400, "RequestLimitExceeded"),
        refused(500, "InternalServerError"),
        refused(503, "ServiceUnavailable"),
    ]
}

/// Whether a fault means that another transaction is in progress.
fn is_conflict(fault: &InjectedFault) -> bool {
    matches!(fault, InjectedFault::Cancel { codes } if codes.contains(&"TransactionConflict"))
}

/// The creation of a to-do.
fn creation(todo: &Subject) -> Write<'_> {
    Write::new(todo, "CreateTodo", json!({"title": "A", "message": ""}))
}

/// Exactly this decision's one event and its message are in the table.
async fn assert_written_once(table: &TestTable, todo: &Subject, decided: &Decided) {
    let events = table.rows(&todo.key, keys::EVENT_PREFIX).await;
    let ids: Vec<_> = events.iter().map(|row| text(row, "eventId").to_owned()).collect();
    assert_eq!(ids, [decided.events[0].event_id.to_string()]);
    assert_eq!(table.rows(&todo.key, keys::OUTBOX_PREFIX).await.len(), 1);
    assert_eq!(number(&todo.metadata(table).await, "currentSeqNum"), 1);
}

fn appends(table: &TestTable) -> usize {
    table.operations().iter().filter(|operation| *operation == APPEND).count()
}

#[tokio::test]
async fn transient_error_is_decided_again_with_a_new_time_and_then_succeeds() {
    for fault in passing() {
        let table = TestTable::new().await;
        let (store, todo) = (table.store(), Subject::shipped("todo", "1"));
        table.proxy.fail_next(APPEND, fault.clone());
        let write = creation(&todo);
        let written = write.send(&store).await.unwrap();
        // After a conflict, the state of the other writer is read.
        let reads: &[&str] = if is_conflict(&fault) { &["GetItem", "Query"] } else { &[] };
        assert_eq!(table.operations(), [reads, &[APPEND, APPEND]].concat(), "{fault:?}");
        let cached = store.cached(&todo.key).unwrap();
        assert_eq!((cached.version(), state(&cached)["title"].as_str()), (1, Some("A")), "{fault:?}");
        let [first, second] = &write.decisions()[..] else { panic!("{fault:?}") };
        assert!(first.events[0].occurred_at < second.events[0].occurred_at, "{fault:?}");
        assert!(first.events[0].event_id < second.events[0].event_id, "{fault:?}");
        assert_eq!(first_id(&write.decision_of(&written)), first_id(second));
        assert_written_once(&table, &todo, second).await;
    }
}

#[tokio::test]
async fn many_consecutive_transient_errors_are_retried() {
    let table = TestTable::new().await;
    let todo = Subject::shipped("todo", "1");
    let faults = passing();
    let attempts = faults.len() + 1;
    for fault in faults {
        table.proxy.fail_next(APPEND, fault);
    }
    let write = creation(&todo);
    let written = write.send(&table.store()).await.unwrap();
    assert_eq!(appends(&table), attempts);
    assert_written_once(&table, &todo, &write.decision_of(&written)).await;
}

#[tokio::test]
async fn every_attempt_is_a_decision_with_its_own_ids_and_token() {
    let table = TestTable::new().await;
    let todo = Subject::shipped("todo", "1");
    for fault in [InjectedFault::BreakBefore, cancelled(["TransactionConflict"; 3]), InjectedFault::BreakAfter] {
        table.proxy.fail_next(APPEND, fault);
    }
    let write = creation(&todo);
    let written = write.send(&table.store()).await.unwrap();
    let calls = table.proxy.take_calls();
    let appends = calls.iter().filter(|call| call.operation == APPEND);
    let tokens: BTreeSet<_> = appends.map(|call| call.request["ClientRequestToken"].as_str().unwrap()).collect();
    let decisions = write.decisions();
    let ids: BTreeSet<_> = decisions.iter().map(first_id).collect();
    assert_eq!((decisions.len(), ids.len(), tokens.len()), (4, 4, 4));
    // The third attempt was stored, and the fourth found its event.
    assert_eq!(first_id(&write.decision_of(&written)), first_id(&decisions[2]));
    assert_written_once(&table, &todo, &decisions[2]).await;
}

#[tokio::test]
async fn transient_error_until_the_deadline_is_reported_and_nothing_is_written() {
    for fault in passing().into_iter().chain([InjectedFault::BreakBefore]) {
        let table = TestTable::new().await;
        let (store, todo) = (table.store(), Subject::shipped("todo", "1"));
        for _ in 0..1_000 {
            table.proxy.fail_next(APPEND, fault.clone());
        }
        let deadline = Instant::now() + Duration::from_millis(60);
        let error = creation(&todo).send_until(&store, deadline).await.unwrap_err();
        let may_be_written = matches!(fault, InjectedFault::BreakBefore | InjectedFault::Refuse { status: 500.., .. });
        let is_expected = match error {
            TransactError::OutcomeUnknown { after: 0, has_key: false, .. } => may_be_written,
            TransactError::Contended => is_conflict(&fault),
            TransactError::Store(StoreError::Unavailable { .. }) => !may_be_written && !is_conflict(&fault),
            _ => false,
        };
        assert!(is_expected, "{fault:?}: {error:?}");
        assert!(appends(&table) > 0);
        assert_eq!(table.rows(&todo.key, "").await, [], "{fault:?}");
        assert!(store.cached(&todo.key).is_none());
    }
}

#[tokio::test]
async fn permanently_rejected_request_is_not_retried() {
    for fault in [
        InjectedFault::Refuse { status: 400, code: "AccessDeniedException" },
        InjectedFault::Refuse { status: 400, code: "ResourceNotFoundException" },
        InjectedFault::Refuse { status: 400, code: "ValidationException" },
        cancelled(["None", "ValidationError", "None"]),
    ] {
        let table = TestTable::new().await;
        let todo = Subject::shipped("todo", "1");
        table.proxy.fail_next(APPEND, fault.clone());
        let error = creation(&todo).send(&table.store()).await.unwrap_err();
        assert!(matches!(error, TransactError::Store(StoreError::InvalidRequest { .. })), "{fault:?}: {error:?}");
        assert_eq!(table.operations(), [APPEND], "{fault:?}");
    }
}

#[tokio::test]
async fn decision_that_takes_longer_than_the_send_window_is_made_again() {
    let table = TestTable::new().await;
    let (store, todo) = (table.store(), Subject::shipped("todo", "1"));
    let write = creation(&todo).slow_at_first(SEND_WINDOW);
    let written = write.send(&store).await.unwrap();
    let decisions = write.decisions();
    assert_eq!((decisions.len(), table.operations()), (2, vec![APPEND.to_owned()]), "the first one is not sent");
    assert_eq!(first_id(&write.decision_of(&written)), first_id(&decisions[1]));
    assert_written_once(&table, &todo, &decisions[1]).await;
}

#[tokio::test]
async fn broken_connection_results_in_exactly_one_event_and_no_conflict() {
    use InjectedFault::{BreakAfter, BreakBefore};
    for breaks in [
        vec![BreakBefore],
        vec![BreakAfter],
        vec![BreakBefore, BreakAfter],
        vec![BreakAfter, BreakAfter],
        vec![BreakAfter, BreakBefore, cancelled(["TransactionConflict"; 3])],
    ] {
        let table = TestTable::new().await;
        let (store, todo) = (table.store(), Subject::shipped("todo", "1"));
        for fault in &breaks {
            table.proxy.fail_next(APPEND, fault.clone());
        }
        let write = creation(&todo);
        let written = write.send(&store).await.unwrap();
        assert_eq!(store.cached(&todo.key).unwrap().version(), 1, "{breaks:?}");
        assert_written_once(&table, &todo, &write.decision_of(&written)).await;
    }
}

#[tokio::test]
async fn connection_that_breaks_after_the_commit_is_a_success_even_at_the_deadline() {
    let table = TestTable::new().await;
    let (store, todo) = (table.store(), Subject::shipped("todo", "1"));
    table.proxy.fail_next(APPEND, InjectedFault::BreakAfter);
    let write = creation(&todo);
    let written = write.send_until(&store, Instant::now()).await.unwrap();
    assert_eq!(table.operations(), ["GetItem", APPEND]);
    assert_written_once(&table, &todo, &write.decision_of(&written)).await;
}

#[tokio::test]
async fn lost_response_with_a_failed_check_is_an_unknown_outcome() {
    // The check fails at the deadline, and before it, after the conflict with the request's own append.
    for deadline in [Instant::now(), deadline()] {
        let table = TestTable::new().await;
        let store = table.store();
        let account = ledger(&store, "1", 3).await;
        table.proxy.fail_next(APPEND, InjectedFault::BreakAfter);
        for _ in 0..20 {
            table.proxy.fail_next("GetItem", InjectedFault::Refuse { status: 500, code: "InternalServerError" });
        }
        let withdrawal = Write::new(&account, "RecordTransaction", json!({"desc": "", "amount": -700}));
        let error = withdrawal.send_until(&store, deadline).await.unwrap_err();
        assert!(matches!(error, TransactError::OutcomeUnknown { after: 3, has_key: false, .. }), "{error:?}");
        assert_eq!(table.rows(&account.key, keys::EVENT_PREFIX).await.len(), 4);
    }
}

#[tokio::test]
async fn call_without_a_response_is_an_unknown_outcome_at_the_deadline() {
    let table = TestTable::new().await;
    let todo = Subject::shipped("todo", "1");
    table.proxy.fail_next(APPEND, InjectedFault::Hang);
    let error = creation(&todo).send_until(&table.store(), Instant::now()).await.unwrap_err();
    assert!(matches!(error, TransactError::OutcomeUnknown { after: 0, .. }), "{error:?}");
}

#[tokio::test]
async fn commit_with_a_lost_response_is_found_by_its_event() {
    let table = TestTable::new().await;
    let todo = Subject::shipped("todo", "1");
    table.proxy.fail_next(APPEND, InjectedFault::BreakAfter);
    table.proxy.fail_next(APPEND, cancelled(["ConditionalCheckFailed"; 3]));
    let write = creation(&todo);
    let written = write.send(&table.store()).await.unwrap();
    assert_eq!(table.operations(), ["GetItem", APPEND, APPEND]);
    assert_eq!(first_id(&write.decision_of(&written)), first_id(&write.decisions()[0]));
    assert_written_once(&table, &todo, &write.decisions()[0]).await;
}

/// Runs a creation whose first call breaks, and `meanwhile`, the write of another writer, before the next attempt.
async fn creation_around(
    table: &TestTable,
    write: &Write<'_>,
    first_call: InjectedFault,
    meanwhile: impl Future<Output = Loaded>,
) -> Result<Transacted, TransactError<String>> {
    table.proxy.fail_next(APPEND, first_call);
    let store = table.store();
    let mut append = pin!(write.send(&store));
    table.proxy.hold(&mut append, |calls| !calls.is_empty()).await;
    meanwhile.await;
    append.await
}

#[tokio::test]
async fn append_with_a_broken_connection_succeeds_although_another_writer_followed() {
    let table = TestTable::new().await;
    let todo = Subject::shipped("todo", "1");
    let other = table.direct_store();
    let meanwhile = todo.command(&other, "UpdateTodo", json!({"title": "B", "message": ""}));
    let write = creation(&todo);
    let written = creation_around(&table, &write, InjectedFault::BreakAfter, meanwhile).await.unwrap();
    assert!(matches!(&written, Transacted::Decided(response) if response.version == 1), "{written:?}");
    assert_eq!(table.operations(), ["GetItem", APPEND]);

    let events = table.rows(&todo.key, keys::EVENT_PREFIX).await;
    assert_eq!(events.len(), 2);
    assert_eq!(text(&events[0], "eventId"), first_id(&write.decisions()[0]));
    let now = todo.load(&table.store()).await;
    assert_eq!((now.version(), state(&now)["title"].as_str()), (2, Some("B")));
}

#[tokio::test]
async fn broken_connection_and_another_writer_at_the_same_version_is_decided_again() {
    let table = TestTable::new().await;
    let todo = Subject::shipped("todo", "1");
    let other = table.direct_store();
    let meanwhile = todo.command(&other, "CreateTodo", json!({"title": "B", "message": ""}));
    let error = creation_around(&table, &creation(&todo), InjectedFault::BreakBefore, meanwhile).await.unwrap_err();
    assert_eq!(error.to_string(), "the commands cannot be decided: it exists already");
    assert_eq!(table.rows(&todo.key, keys::EVENT_PREFIX).await.len(), 1);
    assert_eq!(state(&todo.load(&table.store()).await)["title"], "B");
}

#[tokio::test]
async fn metadata_without_a_version_is_corrupt_not_a_conflict() {
    let table = TestTable::new().await;
    let store = table.store();
    let account = ledger(&store, "1", 2).await;
    table.tamper(&account.key, keys::METADATA, [("currentSeqNum", AttributeValue::S("two".into()))]).await;
    let payment = Write::new(&account, "RecordTransaction", json!({"desc": "payment", "amount": 1}));
    let error = payment.send(&store).await.unwrap_err();
    let TransactError::Store(StoreError::Corrupt { item, .. }) = error else { panic!("{error:?}") };
    assert_eq!(item, "the metadata of account/1");
}

#[tokio::test]
async fn reads_retry_transient_errors_and_report_persistent_ones() {
    let table = TestTable::new().await;
    let account = ledger(&table.store(), "1", 3).await;
    table.proxy.take_calls();
    let throttled = InjectedFault::Refuse { status: 400, code: "ThrottlingException" };
    for fault in [
        throttled.clone(),
        InjectedFault::Refuse { status: 500, code: "InternalServerError" },
        InjectedFault::BreakBefore,
    ] {
        table.proxy.fail_next("Query", fault);
        assert_eq!(account.load(&table.store()).await.version(), 3);
        assert_eq!(table.operations(), ["GetItem", "Query", "Query"]);
    }
    let load = async |store: &EventStore| store.load(account.model(), &account.key).await.unwrap_err();
    for _ in 0..4 {
        table.proxy.fail_next("Query", throttled.clone());
    }
    let error = load(&table.store()).await;
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
    table.proxy.fail_next("GetItem", InjectedFault::Refuse { status: 400, code: "AccessDeniedException" });
    let error = load(&table.store()).await;
    assert!(matches!(error, StoreError::InvalidRequest { .. }), "{error:?}");
}

#[tokio::test]
async fn another_committing_transaction_is_contention_not_corruption() {
    let table = TestTable::new().await;
    let todo = Subject::shipped("todo", "1");
    // The rows of the other transaction exist already, and it still holds the metadata.
    table.proxy.fail_next(APPEND, cancelled(["TransactionConflict", "ConditionalCheckFailed", "None"]));
    let write = creation(&todo);
    let written = write.send(&table.store()).await.unwrap();
    assert_written_once(&table, &todo, &write.decision_of(&written)).await;
}
