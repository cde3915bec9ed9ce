//! Responses stored under an idempotency key: in the transaction of their command, or not at all.

use std::time::Duration;

use daybook_decider::{Decided, Folded};
use daybook_event_store::limits::{MAX_ITEM, TooLarge};
use daybook_event_store::{
    AppendError, CommandResponse, EventStore, IdempotencyKey, Loaded, ResponseToStore, StoredResponse,
};
use daybook_table::keys;
use daybook_test_support::clock::now;
use daybook_test_support::commands::deadline;
use daybook_test_support::fault_proxy::InjectedFault;
use daybook_test_support::row::{notation, number};
use daybook_test_support::table::TestTable;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::support::{Subject, ledger};

const APPEND: &str = "TransactWriteItems";

fn response(body: impl Into<String>) -> CommandResponse {
    CommandResponse { status: 201, version: 1, state_version: 3, body: body.into() }
}

fn stored(body: impl Into<String>) -> StoredResponse {
    StoredResponse { digest: "d1".into(), response: response(body) }
}

fn a_day_after(now: Timestamp) -> Timestamp {
    now + SignedDuration::from_hours(24)
}

/// Appends under the key `k-1`, at a time.
async fn append(
    store: &EventStore,
    subject: &Subject,
    (before, decided): (&Folded, &Decided),
    response: CommandResponse,
    now: Timestamp,
) -> Result<Loaded, AppendError> {
    let idempotency = IdempotencyKey { key: "k-1", digest: "d1", ttl: Duration::from_hours(24) };
    let to_store = ResponseToStore { idempotency, response, now };
    store.append(subject.model(), &subject.key, before.version(), decided, Some(to_store), deadline()).await
}

fn an_opening() -> (Subject, Folded, Decided) {
    let account = Subject::shipped("account", "1");
    let before = account.unborn();
    let decided = account.decide(&before, &[("OpenAccount", json!({}))]);
    (account, before, decided)
}

#[tokio::test]
async fn response_is_stored_with_its_events() {
    let table = TestTable::new().await;
    let store = table.store();
    let (account, before, decided) = an_opening();
    let at = now();
    append(&store, &account, (&before, &decided), response("{}"), at).await.unwrap();
    assert_eq!(table.operations(), [APPEND]);
    assert_eq!(
        notation(&table.row(&account.key, &keys::idempotency_sk("k-1")).await.unwrap()),
        json!({
            "pk": {"S": "AGGREGATE#account#1"},
            "sk": {"S": "IDEMPOTENCY#k-1"},
            "digest": {"S": "d1"},
            "status": {"N": "201"},
            "version": {"N": "1"},
            "stateVersion": {"N": "3"},
            "body": {"S": "{}"},
            "ttl": {"N": a_day_after(at).as_second().to_string()},
        })
    );
    let kept = async |key, at| store.stored_response(&account.key, key, at).await.unwrap();
    assert_eq!(kept("k-1", at).await, Some(stored("{}")));
    assert_eq!(kept("k-1", a_day_after(at)).await, None, "a row whose time is past is as good as none");
    assert_eq!(kept("k-2", at).await, None);
    assert_eq!(account.load(&table.store()).await.version(), 1, "the row is no event");
}

#[tokio::test]
async fn used_key_returns_its_response_and_appends_nothing() {
    let table = TestTable::new().await;
    let store = table.store();
    let (account, before, decided) = an_opening();
    append(&store, &account, (&before, &decided), response("first"), now()).await.unwrap();
    let loaded = account.load(&store).await;
    let pay = ("RecordTransaction", json!({"desc": "payment", "amount": 1}));
    let again = account.decide(&loaded.folded, &[pay]);
    // First at the version that was decided on, then at a later one.
    for _ in 0..2 {
        let error = append(&store, &account, (&loaded.folded, &again), response("second"), now()).await.unwrap_err();
        assert!(matches!(&error, AppendError::KeyUsed(known) if *known == stored("first")), "{error:?}");
        assert_eq!(number(&account.metadata(&table).await, "currentSeqNum"), account.load(&store).await.version());
        ledger(&store, "1", 2).await;
    }
    assert_eq!(table.rows(&account.key, keys::EVENT_PREFIX).await.len(), 2);
}

#[tokio::test]
async fn expired_key_can_be_used_again() {
    let table = TestTable::new().await;
    let store = table.store();
    let (account, before, decided) = an_opening();
    let at = now();
    append(&store, &account, (&before, &decided), response("first"), at).await.unwrap();
    let loaded = account.load(&store).await;
    let again = account.decide(&loaded.folded, &[("RecordTransaction", json!({"desc": "payment", "amount": 1}))]);
    let later = a_day_after(at);
    append(&store, &account, (&loaded.folded, &again), response("second"), later).await.unwrap();
    assert_eq!(store.stored_response(&account.key, "k-1", later).await.unwrap(), Some(stored("second")));
}

#[tokio::test]
async fn response_without_events_is_stored_only_at_the_decided_version() {
    let table = TestTable::new().await;
    let account = ledger(&table.store(), "1", 3).await;
    let store = table.store();
    let before = account.load(&store).await.folded;
    let idle = account.decide(&before, &[]);
    table.proxy.take_calls();
    append(&store, &account, (&before, &idle), response("idle"), now()).await.unwrap();
    assert_eq!(table.operations(), [APPEND]);
    assert_eq!(table.rows(&account.key, keys::EVENT_PREFIX).await.len(), 3);
    assert_eq!(number(&account.metadata(&table).await, "currentSeqNum"), 3);
    assert_eq!(store.stored_response(&account.key, "k-1", now()).await.unwrap(), Some(stored("idle")));

    table.delete(&account.key, &keys::idempotency_sk("k-1")).await;
    ledger(&table.store(), "1", 4).await;
    let error = append(&store, &account, (&before, &idle), response("idle"), now()).await.unwrap_err();
    assert!(matches!(error, AppendError::Conflict { actual: 4 }), "{error:?}");
    assert_eq!(store.stored_response(&account.key, "k-1", now()).await.unwrap(), None);
}

#[tokio::test]
async fn append_during_the_same_request_is_busy_and_then_gets_its_response() {
    let table = TestTable::new().await;
    let store = table.store();
    let (account, before, decided) = an_opening();
    append(&store, &account, (&before, &decided), response("first"), now()).await.unwrap();
    let (_, _, twin) = an_opening();
    // The metadata of the first request is committed, and its response not yet.
    table.proxy.take_calls();
    let codes = vec!["ConditionalCheckFailed", "None", "TransactionConflict"];
    table.proxy.fail_next(APPEND, InjectedFault::Cancel { codes });
    let twin = async || append(&store, &account, (&before, &twin), response("second"), now()).await.unwrap_err();
    let error = twin().await;
    assert!(matches!(&error, AppendError::Busy), "{error:?}");
    let error = twin().await;
    assert!(matches!(&error, AppendError::KeyUsed(known) if *known == stored("first")), "{error:?}");
    assert_eq!(table.operations(), [APPEND, APPEND]);
}

#[tokio::test]
async fn conflicting_append_stores_no_response() {
    let table = TestTable::new().await;
    let (account, before, decided) = an_opening();
    ledger(&table.store(), "1", 3).await;
    let store = table.store();
    let error = append(&store, &account, (&before, &decided), response("first"), now()).await.unwrap_err();
    assert!(matches!(error, AppendError::Conflict { actual: 3 }), "{error:?}");
    assert_eq!(table.row(&account.key, &keys::idempotency_sk("k-1")).await, None);
}

#[tokio::test]
async fn response_of_an_append_whose_outcome_is_unknown_is_found_by_the_next_one() {
    let table = TestTable::new().await;
    let (account, before, decided) = an_opening();
    table.proxy.fail_next(APPEND, InjectedFault::BreakAfter);
    let error = append(&table.store(), &account, (&before, &decided), response("first"), now()).await.unwrap_err();
    assert!(matches!(error, AppendError::Unknown(_)), "{error:?}");
    let (_, _, again) = an_opening();
    let error = append(&table.store(), &account, (&before, &again), response("second"), now()).await.unwrap_err();
    assert!(matches!(&error, AppendError::KeyUsed(known) if *known == stored("first")), "{error:?}");
    assert_eq!(table.rows(&account.key, keys::EVENT_PREFIX).await.len(), 1);
}

#[tokio::test]
async fn large_response_is_stored_compressed_and_oversized_one_fails_without_a_call() {
    let table = TestTable::new().await;
    let store = table.store();
    let (account, before, decided) = an_opening();
    let mut random = fastrand::Rng::with_seed(7);
    let noise: String = std::iter::repeat_with(|| random.alphanumeric()).take(2 * MAX_ITEM).collect();
    let error = append(&store, &account, (&before, &decided), response(noise), now()).await.unwrap_err();
    assert!(matches!(error, AppendError::TooLarge(TooLarge::Response { bytes }) if bytes > MAX_ITEM), "{error:?}");
    assert_eq!(table.operations(), [""; 0]);

    let large = response("A".repeat(2 * MAX_ITEM));
    append(&store, &account, (&before, &decided), large, now()).await.unwrap();
    assert!(table.row(&account.key, &keys::idempotency_sk("k-1")).await.unwrap()["body"].is_b());
    assert_eq!(
        store.stored_response(&account.key, "k-1", now()).await.unwrap(),
        Some(stored("A".repeat(2 * MAX_ITEM)))
    );
}
