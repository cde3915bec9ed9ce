//! Appends while DynamoDB is contended, throttled, failing, or silent about what became of a call.

use std::pin::pin;
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use daybook_decider::{Decided, Folded};
use daybook_event_store::{AppendError, EventStore, Loaded, StoreError};
use daybook_table::keys;
use daybook_test_support::fault_proxy::InjectedFault;
use daybook_test_support::row::{number, text};
use daybook_test_support::table::TestTable;
use serde_json::json;
use tokio::time::Instant;

use crate::support::{Subject, ledger, state};

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

/// A to-do and the decision that creates it.
fn a_creation() -> (Subject, Folded, Decided) {
    let todo = Subject::shipped("todo", "1");
    let before = todo.unborn();
    let decided = todo.decide(&before, &[("CreateTodo", json!({"title": "A", "message": ""}))]);
    (todo, before, decided)
}

/// Exactly this decision's one event and its message are in the table.
async fn assert_written_once(table: &TestTable, todo: &Subject, decided: &Decided) {
    let events = table.rows(&todo.key, keys::EVENT_PREFIX).await;
    let ids: Vec<_> = events.iter().map(|row| text(row, "eventId").to_owned()).collect();
    assert_eq!(ids, [decided.events[0].event_id.to_string()]);
    assert_eq!(table.rows(&todo.key, keys::OUTBOX_PREFIX).await.len(), 1);
    assert_eq!(number(&todo.metadata(table).await, "currentSeqNum"), 1);
}

#[tokio::test]
async fn transient_error_is_retried_and_then_succeeds() {
    for fault in passing() {
        let table = TestTable::new().await;
        let (todo, before, decided) = a_creation();
        table.proxy.fail_next(APPEND, fault.clone());
        let after = todo.append(&table.store(), &before, &decided).await.unwrap();
        assert_eq!((after.version(), state(&after)["title"].as_str()), (1, Some("A")), "{fault:?}");
        assert_eq!(table.operations(), [APPEND, APPEND], "{fault:?}");
        assert_written_once(&table, &todo, &decided).await;
    }
}

#[tokio::test]
async fn many_consecutive_transient_errors_are_retried() {
    let table = TestTable::new().await;
    let (todo, before, decided) = a_creation();
    let faults = passing();
    let attempts = faults.len() + 1;
    for fault in faults {
        table.proxy.fail_next(APPEND, fault);
    }
    todo.append(&table.store(), &before, &decided).await.unwrap();
    assert_eq!(table.operations(), vec![APPEND; attempts]);
    assert_written_once(&table, &todo, &decided).await;
}

#[tokio::test]
async fn all_attempts_of_an_append_carry_one_token_and_appends_differ() {
    let table = TestTable::new().await;
    let store = table.store();
    let (todo, before, decided) = a_creation();
    for fault in [InjectedFault::BreakBefore, cancelled(["TransactionConflict"; 3]), InjectedFault::BreakAfter] {
        table.proxy.fail_next(APPEND, fault);
    }
    todo.append(&store, &before, &decided).await.unwrap();
    todo.command(&store, "DeleteTodo", json!({})).await;
    let calls = table.proxy.take_calls();
    let tokens: Vec<_> = calls.iter().map(|call| call.request["ClientRequestToken"].as_str().unwrap()).collect();
    assert_eq!(tokens.len(), 5);
    assert!(tokens[..4].iter().all(|token| *token == tokens[0]));
    assert_ne!(tokens[4], tokens[0]);
}

#[tokio::test]
async fn transient_error_until_the_deadline_is_unavailable_and_nothing_is_written() {
    for fault in passing().into_iter().chain([InjectedFault::BreakBefore]) {
        let table = TestTable::new().await;
        let store = table.store();
        let (todo, before, decided) = a_creation();
        for _ in 0..1_000 {
            table.proxy.fail_next(APPEND, fault.clone());
        }
        let deadline = Instant::now() + Duration::from_millis(60);
        let error =
            store.append(todo.model(), &todo.key, before.version(), &decided, None, deadline).await.unwrap_err();
        assert!(matches!(error, AppendError::Store(StoreError::Unavailable { .. })), "{fault:?}: {error:?}");
        assert!(table.proxy.take_calls().iter().any(|call| call.operation == APPEND));
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
        let (todo, before, decided) = a_creation();
        table.proxy.fail_next(APPEND, fault.clone());
        let error = todo.append(&table.store(), &before, &decided).await.unwrap_err();
        assert!(matches!(error, AppendError::Store(StoreError::InvalidRequest { .. })), "{fault:?}: {error:?}");
        assert_eq!(table.operations(), [APPEND], "{fault:?}");
    }
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
        let (todo, before, decided) = a_creation();
        for fault in &breaks {
            table.proxy.fail_next(APPEND, fault.clone());
        }
        let after = todo.append(&table.store(), &before, &decided).await.unwrap();
        assert_eq!(after.version(), 1, "{breaks:?}");
        assert_written_once(&table, &todo, &decided).await;
    }
}

#[tokio::test]
async fn connection_that_breaks_after_the_commit_is_a_success_even_at_the_deadline() {
    let table = TestTable::new().await;
    let store = table.store();
    let (todo, before, decided) = a_creation();
    table.proxy.fail_next(APPEND, InjectedFault::BreakAfter);
    store.append(todo.model(), &todo.key, before.version(), &decided, None, Instant::now()).await.unwrap();
    assert_eq!(table.operations(), ["Query", APPEND]);
    assert_written_once(&table, &todo, &decided).await;
}

#[tokio::test]
async fn commit_with_an_expired_token_is_found_by_its_event() {
    let table = TestTable::new().await;
    let (todo, before, decided) = a_creation();
    table.proxy.fail_next(APPEND, InjectedFault::BreakAfter);
    table.proxy.fail_next(APPEND, cancelled(["ConditionalCheckFailed"; 3]));
    todo.append(&table.store(), &before, &decided).await.unwrap();
    assert_eq!(table.operations(), ["Query", APPEND, APPEND]);
    assert_written_once(&table, &todo, &decided).await;
}

/// Runs an append whose first call breaks, and another writer's `meanwhile` before it is tried again.
async fn append_around(
    table: &TestTable,
    (subject, before, decided): (&Subject, &Folded, &Decided),
    first_call: InjectedFault,
    meanwhile: impl Future<Output = Loaded>,
) -> Result<Loaded, AppendError> {
    table.proxy.fail_next(APPEND, first_call);
    let store = table.store();
    let mut append = pin!(subject.append(&store, before, decided));
    table.proxy.hold(&mut append, |calls| !calls.is_empty()).await;
    meanwhile.await;
    append.await
}

#[tokio::test]
async fn append_with_a_broken_connection_succeeds_although_another_writer_followed() {
    for token_is_remembered in [true, false] {
        let table = TestTable::new().await;
        let (todo, before, decided) = a_creation();
        let other = table.direct_store();
        let update = todo.command(&other, "UpdateTodo", json!({"title": "B", "message": ""}));
        let meanwhile = async {
            let updated = update.await;
            if !token_is_remembered {
                table.proxy.fail_next(APPEND, cancelled(["ConditionalCheckFailed"; 3]));
            }
            updated
        };
        let after =
            append_around(&table, (&todo, &before, &decided), InjectedFault::BreakAfter, meanwhile).await.unwrap();
        assert_eq!((after.version(), state(&after)["title"].as_str()), (1, Some("A")));
        let looked_for = if token_is_remembered { vec![APPEND] } else { vec!["Query", APPEND] };
        assert_eq!(table.operations(), looked_for);

        let events = table.rows(&todo.key, keys::EVENT_PREFIX).await;
        assert_eq!(events.len(), 2);
        assert_eq!(text(&events[0], "eventId"), decided.events[0].event_id.to_string());
        let now = todo.load(&table.store()).await;
        assert_eq!((now.version(), state(&now)["title"].as_str()), (2, Some("B")));
    }
}

#[tokio::test]
async fn broken_connection_and_another_writer_at_the_same_version_is_a_conflict() {
    let table = TestTable::new().await;
    let (todo, before, decided) = a_creation();
    let other = table.direct_store();
    let meanwhile = todo.command(&other, "CreateTodo", json!({"title": "B", "message": ""}));
    let error =
        append_around(&table, (&todo, &before, &decided), InjectedFault::BreakBefore, meanwhile).await.unwrap_err();
    assert!(matches!(error, AppendError::Conflict { actual: 1 }), "{error:?}");
    assert_eq!(table.rows(&todo.key, keys::EVENT_PREFIX).await.len(), 1);
    assert_eq!(state(&todo.load(&table.store()).await)["title"], "B");
}

#[tokio::test]
async fn metadata_without_a_version_is_corrupt_not_a_conflict() {
    let table = TestTable::new().await;
    let store = table.store();
    let account = ledger(&store, "1", 2).await;
    table.tamper(&account.key, keys::METADATA, [("currentSeqNum", AttributeValue::S("two".into()))]).await;
    let before = store.cached(&account.key).unwrap();
    let pay = ("RecordTransaction", json!({"desc": "payment", "amount": 1}));
    let decided = account.decide(&before.folded, &[pay]);
    let error = account.append(&store, &before.folded, &decided).await.unwrap_err();
    assert!(matches!(error, AppendError::Store(StoreError::Corrupt { .. })), "{error:?}");
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
    let (todo, before, decided) = a_creation();
    // Its rows are there already, and the metadata is still held.
    table.proxy.fail_next(APPEND, cancelled(["TransactionConflict", "ConditionalCheckFailed", "None"]));
    todo.append(&table.store(), &before, &decided).await.unwrap();
    assert_written_once(&table, &todo, &decided).await;
}
