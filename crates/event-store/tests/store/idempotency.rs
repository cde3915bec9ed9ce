//! Responses stored under an idempotency key: in the transaction of their command, or not at all.

use std::pin::pin;
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use daybook_decider::{Folded, Involved};
use daybook_event_store::limits::MAX_ITEM;
use daybook_event_store::{
    CommandResponse, Decide, EventStore, IdempotencyKey, LoadPolicy, ResponseDetail, StoreError, StoredResponse,
    TransactError, TransactOptions, Transacted, Undecided,
};
use daybook_table::keys;
use daybook_test_support::clock::now;
use daybook_test_support::commands::{deadline, requests};
use daybook_test_support::fault_proxy::InjectedFault;
use daybook_test_support::row::{notation, number};
use daybook_test_support::table::TestTable;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::append::expect_checksum;
use crate::support::{Subject, ledger};

const APPEND: &str = "TransactWriteItems";

/// Commands to account 1, each with the body of its response.
struct Request<'a> {
    account: &'a Subject,
    commands: Vec<(&'static str, Value)>,
    body: String,
}

impl Request<'_> {
    /// Sends the commands under the key `k-1`.
    async fn send(&self, store: &EventStore) -> Result<Transacted, TransactError<String>> {
        let options = TransactOptions {
            policy: LoadPolicy::Incremental,
            creates: self.commands.iter().any(|(command, _)| *command == "OpenAccount"),
            expected_version: None,
            idempotency: Some(IdempotencyKey { key: "k-1", digest: "d1", ttl: Duration::from_hours(24) }),
            deadline: deadline(),
        };
        store.transact(self.account.model(), &self.account.key, self, &options).await
    }
}

impl Decide for Request<'_> {
    type Error = String;

    fn decide(&self, before: &Folded, _: &Involved) -> Result<daybook_decider::Decisions, Undecided<String>> {
        let (id, input) = (&self.account.key.id, daybook_test_support::clock::next_input());
        let decided = self.account.model().decide(before, id, &requests(&self.commands), &input);
        decided.map(Into::into).map_err(|error| error.to_string().into())
    }

    fn respond(
        &self,
        _: &Folded,
        decisions: &daybook_decider::Decisions,
        _: ResponseDetail,
    ) -> Result<CommandResponse, String> {
        let decided = &decisions.own;
        Ok(response(decided.after.version(), self.body.clone()))
    }
}

fn account() -> Subject {
    Subject::shipped("account", "1")
}

fn opening(account: &Subject, body: impl Into<String>) -> Request<'_> {
    Request { account, commands: vec![("OpenAccount", json!({}))], body: body.into() }
}

fn payment<'a>(account: &'a Subject, body: &str) -> Request<'a> {
    let pay = ("RecordTransaction", json!({"desc": "payment", "amount": 1}));
    Request { account, commands: vec![pay], body: body.to_owned() }
}

fn response(version: u64, body: impl Into<String>) -> CommandResponse {
    CommandResponse { status: 201, version, state_version: 3, body: body.into() }
}

fn stored(version: u64, body: impl Into<String>) -> StoredResponse {
    StoredResponse { digest: "d1".into(), response: response(version, body) }
}

fn a_day_after(now: Timestamp) -> Timestamp {
    now + SignedDuration::from_hours(24)
}

/// The response that is stored under the key `k-1` at a time.
async fn stored_at(store: &EventStore, now: Timestamp) -> Option<StoredResponse> {
    store.stored_response(&account().key, "k-1", now).await.unwrap()
}

#[tokio::test]
async fn response_is_stored_with_its_events() {
    let table = TestTable::new().await;
    let at = now();
    let store = table.store().with_clock(move || at);
    let account = account();
    opening(&account, "{}").send(&store).await.unwrap();
    assert_eq!(table.operations(), [APPEND]);
    let mut row = notation(&table.row(&account.key, &keys::idempotency_sk("k-1")).await.unwrap());
    expect_checksum(&mut row);
    assert_eq!(
        row,
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
    assert_eq!(stored_at(&store, at).await, Some(stored(1, "{}")));
    assert_eq!(stored_at(&store, a_day_after(at)).await, None, "a row whose time is past is as good as none");
    assert_eq!(store.stored_response(&account.key, "k-2", at).await.unwrap(), None);
    assert_eq!(account.load(&table.store()).await.version(), 1, "the row is no event");
}

#[tokio::test]
async fn expired_key_can_be_used_again() {
    let table = TestTable::new().await;
    let at = now();
    let later = a_day_after(at);
    let account = account();
    opening(&account, "first").send(&table.store().with_clock(move || at)).await.unwrap();
    let store = table.store().with_clock(move || later);
    let settled = payment(&account, "second").send(&store).await.unwrap();
    assert_eq!(settled, Transacted::Decided(response(2, "second")));
    assert_eq!(stored_at(&store, later).await, Some(stored(2, "second")));
}

#[tokio::test]
async fn response_without_events_is_stored_only_at_the_decided_version() {
    let table = TestTable::new().await;
    let account = ledger(&table.store(), "1", 3).await;
    let store = table.store();
    account.load(&store).await;
    let idle = Request { account: &account, commands: vec![], body: "idle".to_owned() };
    table.proxy.take_calls();
    idle.send(&store).await.unwrap();
    assert_eq!(table.operations(), [APPEND]);
    assert_eq!(table.rows(&account.key, keys::EVENT_PREFIX).await.len(), 3);
    assert_eq!(number(&account.metadata(&table).await, "currentSeqNum"), 3);
    assert_eq!(stored_at(&store, Timestamp::now()).await, Some(stored(3, "idle")));

    table.delete(&account.key, &keys::idempotency_sk("k-1")).await;
    ledger(&table.store(), "1", 4).await;
    // The cached state is outdated, so the response to it is not stored.
    idle.send(&store).await.unwrap();
    assert_eq!(stored_at(&store, Timestamp::now()).await, Some(stored(4, "idle")));
}

#[tokio::test]
async fn request_during_the_same_request_gets_its_response() {
    let table = TestTable::new().await;
    let account = account();
    opening(&account, "first").send(&table.store()).await.unwrap();
    table.proxy.take_calls();
    // The metadata of the first request is committed, and its response not yet.
    let codes = vec!["ConditionalCheckFailed", "None", "TransactionConflict"];
    table.proxy.fail_next(APPEND, InjectedFault::Cancel { codes });
    let twin = opening(&account, "second").send(&table.store()).await.unwrap();
    assert_eq!(twin, Transacted::Replayed(response(1, "first")));
    assert_eq!(table.operations().iter().filter(|operation| *operation == APPEND).count(), 1);
    assert_eq!(table.rows(&account.key, keys::EVENT_PREFIX).await.len(), 1);
}

#[tokio::test]
async fn state_of_a_lost_append_is_not_cached_because_another_process_has_stored_an_equal_response() {
    let table = TestTable::new().await;
    let account = ledger(&table.store(), "1", 1).await;
    let store = table.store();
    account.load(&store).await;
    table.proxy.take_calls();
    table.proxy.fail_next(APPEND, InjectedFault::BreakBefore);
    let lost = payment(&account, "");
    let mut lost = pin!(lost.send(&store));
    table.proxy.hold(&mut lost, |calls| !calls.is_empty()).await;
    let other =
        Request { commands: vec![("RecordTransaction", json!({"desc": "", "amount": 2}))], ..payment(&account, "") };
    other.send(&table.direct_store()).await.unwrap();
    assert!(matches!(lost.await, Ok(Transacted::Decided(of) | Transacted::Replayed(of)) if of == response(2, "")));
    let stored = account.load(&table.store()).await;
    assert!(store.cached(&account.key).is_none_or(|cached| cached.version() < 2 || cached.state == stored.state));
    assert_eq!(account.load(&store).await.state, stored.state);
}

#[tokio::test]
async fn conflicting_append_stores_no_response() {
    let table = TestTable::new().await;
    let account = ledger(&table.store(), "1", 3).await;
    // The store assumes that the account does not exist.
    let error = opening(&account, "first").send(&table.store()).await.unwrap_err();
    assert!(matches!(&error, TransactError::Decide(text) if text == "it exists already"), "{error:?}");
    assert_eq!(table.row(&account.key, &keys::idempotency_sk("k-1")).await, None);
}

#[tokio::test]
async fn stored_response_that_was_changed_is_not_replayed() {
    let table = TestTable::new().await;
    let account = account();
    opening(&account, "first").send(&table.store()).await.unwrap();
    let row = table.row(&account.key, &keys::idempotency_sk("k-1")).await.unwrap();
    for name in row.keys().filter(|name| !["pk", "sk"].contains(&name.as_str())) {
        let mut changed = row.clone();
        match &row[name] {
            AttributeValue::N(number) => {
                changed.insert(name.clone(), AttributeValue::N((number.parse::<u64>().unwrap() + 1).to_string()))
            }
            AttributeValue::S(text) => changed.insert(name.clone(), AttributeValue::S(format!("{text} "))),
            _ => changed.remove(name),
        };
        table.put(changed).await;
        let error = opening(&account, "first").send(&table.store()).await.unwrap_err();
        let causes = daybook_function_runtime::with_causes(&error);
        assert!(
            matches!(error, TransactError::Store(StoreError::Corrupt { .. }))
                && causes
                    .contains("a stored response of account/1 is corrupt: its checksum does not match its content"),
            "{name}: {causes}"
        );
        assert!(table.store().stored_response(&account.key, "k-1", Timestamp::now()).await.is_err(), "{name}");
    }
    assert_eq!(table.rows(&account.key, keys::EVENT_PREFIX).await.len(), 1);
    table.put(row).await;
    let again = opening(&account, "first").send(&table.store()).await.unwrap();
    assert_eq!(again, Transacted::Replayed(response(1, "first")));
}

#[tokio::test]
async fn large_response_is_stored_compressed() {
    let table = TestTable::new().await;
    let store = table.store();
    let account = account();
    let large = "A".repeat(2 * MAX_ITEM);
    opening(&account, large.clone()).send(&store).await.unwrap();
    assert!(table.row(&account.key, &keys::idempotency_sk("k-1")).await.unwrap()["body"].is_b());
    assert_eq!(stored_at(&store, Timestamp::now()).await, Some(stored(1, large)));
}
