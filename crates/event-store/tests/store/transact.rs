//! The transaction of a command: its calls, the decisions that are repeated, and the results for the caller.

use std::sync::Mutex;
use std::time::Duration;

use daybook_decider::{CommandRequest, Folded, Involved, Json};
use daybook_event_store::limits::{MAX_ITEM, TooLarge};
use daybook_event_store::{
    CommandResponse, Decide, EventStore, IdempotencyKey, LoadPolicy, ResponseDetail, StoreError, TransactError,
    TransactOptions, Transacted, Undecided,
};
use daybook_table::keys;
use daybook_test_support::clock::next_input;
use daybook_test_support::commands::deadline;
use daybook_test_support::fault_proxy::InjectedFault;
use daybook_test_support::table::TestTable;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::{Subject, ledger};

const APPEND: &str = "TransactWriteItems";

/// One command, which records the decisions and responses that were requested.
struct Request<'a> {
    account: &'a Subject,
    command: CommandRequest,
    /// The body of a response with this detail.
    body: fn(ResponseDetail) -> String,
    /// The versions that were decided on.
    decided_on: Mutex<Vec<u64>>,
    details: Mutex<Vec<ResponseDetail>>,
}

impl<'a> Request<'a> {
    fn new(account: &'a Subject, command: &str, data: Value) -> Self {
        let command = CommandRequest { command: command.to_owned(), data: Json::of(&data).unwrap() };
        let body = |detail| format!("{detail:?}");
        Self { account, command, body, decided_on: Mutex::default(), details: Mutex::default() }
    }

    fn payment(account: &'a Subject, amount: i64) -> Self {
        Self::new(account, "RecordTransaction", json!({"desc": "", "amount": amount}))
    }

    async fn send(
        &self,
        store: &EventStore,
        options: TransactOptions<'_>,
    ) -> Result<Transacted, TransactError<String>> {
        store.transact(self.account.model(), &self.account.key, self, &options).await
    }

    fn decided_on(&self) -> Vec<u64> {
        self.decided_on.lock().unwrap().clone()
    }
}

impl Decide for Request<'_> {
    type Error = String;

    fn decide(&self, before: &Folded, _: &Involved) -> Result<daybook_decider::Decisions, Undecided<String>> {
        self.decided_on.lock().unwrap().push(before.version());
        let (id, commands) = (&self.account.key.id, std::slice::from_ref(&self.command));
        self.account
            .model()
            .decide(before, id, commands, &next_input())
            .map(Into::into)
            .map_err(|error| error.to_string().into())
    }

    fn respond(
        &self,
        _: &Folded,
        decisions: &daybook_decider::Decisions,
        detail: ResponseDetail,
    ) -> Result<CommandResponse, String> {
        let decided = &decisions.own;
        self.details.lock().unwrap().push(detail);
        if let Some(rejection) = &decided.rejection {
            return Err(rejection.name.to_owned());
        }
        Ok(CommandResponse {
            status: 200,
            version: decided.after.version(),
            state_version: 1,
            body: (self.body)(detail),
        })
    }
}

fn options() -> TransactOptions<'static> {
    TransactOptions {
        policy: LoadPolicy::Incremental,
        creates: false,
        expected_version: None,
        idempotency: None,
        deadline: deadline(),
    }
}

fn with_key(digest: &'static str) -> TransactOptions<'static> {
    let idempotency = IdempotencyKey { key: "k-1", digest, ttl: Duration::from_hours(24) };
    TransactOptions { idempotency: Some(idempotency), ..options() }
}

fn response(version: u64) -> CommandResponse {
    CommandResponse { status: 200, version, state_version: 1, body: "Full".to_owned() }
}

#[tokio::test]
async fn a_transaction_on_a_cached_or_absent_state_takes_one_call() {
    let table = TestTable::new().await;
    let store = table.store();
    let account = Subject::shipped("account", "1");
    let open = Request::new(&account, "OpenAccount", json!({}));
    let settled = open.send(&store, TransactOptions { creates: true, ..options() }).await.unwrap();
    assert_eq!(settled, Transacted::Decided(response(1)));
    assert_eq!(Request::payment(&account, 1).send(&store, options()).await.unwrap(), Transacted::Decided(response(2)));
    assert_eq!(table.operations(), [APPEND, APPEND]);
    // A rebuild folds every event; without a cached state, the state is loaded.
    let rebuild = TransactOptions { policy: LoadPolicy::Rebuild, ..options() };
    Request::payment(&account, 1).send(&store, rebuild).await.unwrap();
    assert_eq!(table.operations(), ["Query", APPEND]);
    Request::payment(&account, 1).send(&table.store(), options()).await.unwrap();
    assert_eq!(table.operations(), ["GetItem", "Query", APPEND], "snapshot and newest events side by side");
}

#[tokio::test]
async fn transaction_overtaken_by_another_writer_decides_again_on_the_newer_state() {
    let table = TestTable::new().await;
    let store = table.store();
    let account = ledger(&store, "1", 3).await;
    ledger(&table.store(), "1", 4).await;
    let payment = Request::payment(&account, 1);
    assert_eq!(payment.send(&store, options()).await.unwrap(), Transacted::Decided(response(5)));
    assert_eq!(payment.decided_on(), [3, 4]);
}

#[tokio::test]
async fn error_on_a_cached_state_is_decided_again_on_a_state_that_was_read() {
    let table = TestTable::new().await;
    let store = table.store();
    let account = ledger(&store, "1", 1).await;
    table.proxy.take_calls();
    let withdrawal = Request::payment(&account, -1_001);
    let error = withdrawal.send(&store, options()).await.unwrap_err();
    assert!(matches!(&error, TransactError::Decide(name) if name == "InsufficientFunds"), "{error:?}");
    assert_eq!((withdrawal.decided_on(), table.operations()), (vec![1, 1], vec!["Query".to_owned()]));

    Request::payment(&account, 500).send(&table.store(), options()).await.unwrap();
    assert_eq!(withdrawal.send(&store, options()).await.unwrap(), Transacted::Decided(response(3)));
    assert_eq!(withdrawal.decided_on(), [1, 1, 1, 2]);
}

#[tokio::test]
async fn conflict_with_the_expected_version_is_returned_to_the_caller() {
    let table = TestTable::new().await;
    let store = table.store();
    let account = ledger(&store, "1", 3).await;
    ledger(&table.store(), "1", 4).await;
    // The conflict is found at the append (3), and on the state that was read (2).
    for expected in [3, 2] {
        let expecting = TransactOptions { expected_version: Some(expected), ..options() };
        let error = Request::payment(&account, 1).send(&store, expecting).await.unwrap_err();
        let TransactError::Conflict { expected: reported, actual: 4 } = error else { panic!("{error:?}") };
        assert_eq!(reported, expected);
    }
    let expecting = TransactOptions { expected_version: Some(4), ..options() };
    assert_eq!(
        Request::payment(&account, 1).send(&store, expecting).await.unwrap(),
        Transacted::Decided(response(5)),
        "a cached state that is behind is no conflict"
    );
}

#[tokio::test]
async fn a_repeated_request_gets_the_stored_response_and_another_request_gets_none() {
    let table = TestTable::new().await;
    let store = table.store();
    let account = ledger(&store, "1", 3).await;
    let behind = table.store();
    account.load(&behind).await;
    let expecting = TransactOptions { expected_version: Some(3), ..with_key("d1") };
    assert_eq!(Request::payment(&account, 1).send(&store, expecting).await.unwrap(), Transacted::Decided(response(4)));
    // To an instance that has the first payment in its cache, to one whose cache is behind, and to a cold one.
    for store in [store, behind, table.store()] {
        let again = Request::payment(&account, 1).send(&store, expecting).await.unwrap();
        assert_eq!(again, Transacted::Replayed(response(4)));
        let error = Request::payment(&account, 2).send(&store, with_key("d2")).await.unwrap_err();
        assert!(matches!(error, TransactError::KeyReused), "{error:?}");
    }
    assert_eq!(table.rows(&account.key, keys::EVENT_PREFIX).await.len(), 4);
}

#[tokio::test]
async fn response_that_is_too_large_to_be_stored_is_reduced_step_by_step() {
    let table = TestTable::new().await;
    let store = table.store();
    let account = ledger(&store, "1", 1).await;
    let noise = |_| {
        let mut random = fastrand::Rng::with_seed(7);
        std::iter::repeat_with(|| random.alphanumeric()).take(2 * MAX_ITEM).collect()
    };
    let all = [ResponseDetail::Full, ResponseDetail::WithoutState, ResponseDetail::VersionOnly];
    let large = Request { body: noise, ..Request::payment(&account, 1) };
    let error = large.send(&table.store(), with_key("d1")).await.unwrap_err();
    assert!(matches!(error, TransactError::TooLarge { limit: TooLarge::Response { .. }, .. }), "{error:?}");
    assert_eq!(*large.details.lock().unwrap(), all);
    // Without a key, no response is stored, so it is not reduced.
    let large = Request { body: noise, ..Request::payment(&account, 1) };
    large.send(&store, options()).await.unwrap();
    assert_eq!(*large.details.lock().unwrap(), all[..1]);
}

#[tokio::test]
async fn a_transaction_that_is_overtaken_until_the_deadline_is_contended() {
    let table = TestTable::new().await;
    let store = table.store();
    let account = ledger(&store, "1", 3).await;
    ledger(&table.store(), "1", 4).await;
    let soon = TransactOptions { deadline: Instant::now(), ..options() };
    let error = Request::payment(&account, 1).send(&store, soon).await.unwrap_err();
    assert!(matches!(error, TransactError::Contended), "{error:?}");
}

#[tokio::test]
async fn metadata_that_stays_behind_the_events_is_corrupt() {
    let table = TestTable::new().await;
    let store = table.store();
    let account = ledger(&store, "1", 3).await;
    let metadata = account.metadata(&table).await;
    ledger(&store, "1", 4).await;
    let current = account.metadata(&table).await;
    table.put(metadata).await;
    let error = Request::payment(&account, 1).send(&store, options()).await.unwrap_err();
    let TransactError::Store(error) = error else { panic!("{error:?}") };
    assert_eq!(error.to_string(), "account/1 is corrupt");
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(cause, "its metadata is at version 3, but its events end at 4");
    // With less time than a transaction may take to commit, it is unknown whether this is damage.
    let soon = TransactOptions { deadline: Instant::now() + Duration::from_millis(300), ..options() };
    let error = Request::payment(&account, 1).send(&store, soon).await.unwrap_err();
    assert!(matches!(error, TransactError::Store(StoreError::Unavailable { doing: "append", .. })), "{error:?}");
    // If the metadata is behind for a moment only, the transaction succeeds.
    table.put(current).await;
    let codes = vec!["ConditionalCheckFailed", "None", "None"];
    table.proxy.fail_next(APPEND, InjectedFault::Cancel { codes });
    assert_eq!(Request::payment(&account, 1).send(&store, options()).await.unwrap(), Transacted::Decided(response(5)));
}

#[tokio::test]
async fn request_with_a_key_whose_response_was_lost_is_reported_as_decided() {
    // A payment, and a command without effect, which only stores its response.
    for (command, data) in [
        ("RecordTransaction", json!({"desc": "", "amount": 1})),
        ("UpdateOwner", json!({"ownerFirst": "", "ownerLast": ""})),
    ] {
        let table = TestTable::new().await;
        let store = table.store();
        let account = ledger(&store, "1", 1).await;
        table.proxy.fail_next(APPEND, InjectedFault::BreakAfter);
        let request = Request::new(&account, command, data);
        let first = request.send(&store, with_key("d1")).await.unwrap();
        let Transacted::Decided(first) = first else { panic!("{first:?}") };
        assert_eq!(request.send(&store, with_key("d1")).await.unwrap(), Transacted::Replayed(first.clone()));
        assert_eq!(table.rows(&account.key, keys::EVENT_PREFIX).await.len() as u64, first.version);
    }
}

#[tokio::test]
async fn conflict_of_a_stale_cache_is_decided_on_the_state_that_was_read() {
    let table = TestTable::new().await;
    let todo = Subject::shipped("todo", "1");
    let stale = table.store();
    todo.command(&stale, "CreateTodo", json!({"title": "A", "message": ""})).await;
    todo.command(&table.store(), "DeleteTodo", json!({})).await;
    let expecting = TransactOptions { expected_version: Some(1), ..options() };
    for store in [stale, table.store()] {
        for _ in 0..2 {
            let update = Request::new(&todo, "UpdateTodo", json!({"title": "B", "message": ""}));
            let error = update.send(&store, expecting).await.unwrap_err();
            assert!(matches!(&error, TransactError::Decide(text) if text == "it has been deleted"), "{error:?}");
        }
    }
}

#[tokio::test]
async fn requests_of_one_process_to_one_aggregate_are_decided_one_after_the_other() {
    let table = TestTable::new().await;
    let store = table.store();
    let account = ledger(&store, "1", 1).await;
    table.proxy.take_calls();
    let payments: Vec<_> = (0..16).map(|_| Request::payment(&account, 1)).collect();
    let sent = futures_util::future::join_all(payments.iter().map(|payment| payment.send(&store, options()))).await;
    for (version, (payment, sent)) in (1..).zip(payments.iter().zip(sent)) {
        assert_eq!((sent.unwrap(), payment.decided_on()), (Transacted::Decided(response(version + 1)), vec![version]));
    }
    // Those that waited for the first append are appended together.
    assert_eq!(table.operations(), [APPEND; 2]);
}
