//! Requests of one process that are appended together.

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Mutex;
use std::task::Poll;
use std::time::Duration;

use daybook_decider::{CommandRequest, Folded, Involved, Json};
use daybook_event_store::{
    CommandResponse, Decide, EventStore, IdempotencyKey, LoadPolicy, ResponseDetail, TransactError, TransactOptions,
    Transacted, Undecided,
};
use daybook_table::keys;
use daybook_test_support::clock::next_input;
use daybook_test_support::commands::deadline;
use daybook_test_support::fault_proxy::{InjectedFault, RecordedCall};
use daybook_test_support::row::{number, text};
use daybook_test_support::table::TestTable;
use futures_util::future::{BoxFuture, FutureExt, join, join_all};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::{Subject, first_id, ledger, state};

pub(crate) const APPEND: &str = "TransactWriteItems";

/// A request with all its options.
pub(crate) struct Request<'a> {
    account: &'a Subject,
    command: CommandRequest,
    expected_version: Option<u64>,
    key: Option<(&'static str, &'static str)>,
    policy: LoadPolicy,
    deadline: Instant,
    panics: bool,
    decided_on: Mutex<Vec<u64>>,
}

impl<'a> Request<'a> {
    pub(crate) fn new(account: &'a Subject, command: &str, data: Value) -> Self {
        let command = CommandRequest { command: command.to_owned(), data: Json::of(&data).unwrap() };
        let decided_on = Mutex::default();
        let (policy, deadline, panics) = (LoadPolicy::Incremental, deadline(), false);
        Self { account, command, expected_version: None, key: None, policy, deadline, panics, decided_on }
    }

    pub(crate) fn payment(account: &'a Subject, amount: i64) -> Self {
        Self::new(account, "RecordTransaction", json!({"desc": "", "amount": amount}))
    }

    pub(crate) fn with_key(self, key: &'static str, digest: &'static str) -> Self {
        Self { key: Some((key, digest)), ..self }
    }

    /// With these options.
    pub(crate) fn with(self, expected_version: Option<u64>, key: Option<(&'static str, &'static str)>) -> Self {
        Self { expected_version, key, ..self }
    }

    pub(crate) async fn send(&self, store: &EventStore) -> Sent {
        let idempotency = self.key.map(|(key, digest)| IdempotencyKey { key, digest, ttl: Duration::from_hours(24) });
        let options = TransactOptions {
            policy: self.policy,
            creates: false,
            expected_version: self.expected_version,
            idempotency,
            deadline: self.deadline,
        };
        store.transact(self.account.model(), &self.account.key, self, &options).await
    }

    pub(crate) fn decided_on(&self) -> Vec<u64> {
        self.decided_on.lock().unwrap().clone()
    }
}

pub(crate) type Sent = Result<Transacted, TransactError<String>>;

impl Decide for Request<'_> {
    type Error = String;

    fn decide(&self, before: &Folded, _: &Involved) -> Result<daybook_decider::Decisions, Undecided<String>> {
        self.decided_on.lock().unwrap().push(before.version());
        assert!(!self.panics, "a defect of the caller");
        let (id, commands) = (&self.account.key.id, std::slice::from_ref(&self.command));
        self.account
            .model()
            .decide(before, id, commands, &next_input())
            .map(Into::into)
            .map_err(|error| error.to_string().into())
    }

    /// A response whose body is the id of the first event. A rejection that is recorded is a response too.
    fn respond(
        &self,
        _: &Folded,
        decisions: &daybook_decider::Decisions,
        _: ResponseDetail,
    ) -> Result<CommandResponse, String> {
        let decided = &decisions.own;
        let status = match &decided.rejection {
            Some(rejection) if decided.events.is_empty() => return Err(rejection.name.to_owned()),
            Some(_) => 422,
            None => 200,
        };
        let version = decided.after.version();
        Ok(CommandResponse { status, version, state_version: 1, body: first_id(decided) })
    }
}

/// Sends the requests while the append of another one is in progress, so that they wait for it together. Their first
/// append meets the fault. Returns the results, and the calls after that append.
pub(crate) async fn send_together(
    table: &TestTable,
    store: &EventStore,
    requests: &[Request<'_>],
    faults: &[InjectedFault],
) -> (Vec<Sent>, Vec<RecordedCall>) {
    send_behind(table, store, &Request::payment(requests[0].account, 1), requests, faults).await
}

/// Does the same with this request as the one whose append is in progress.
pub(crate) async fn send_behind(
    table: &TestTable,
    store: &EventStore,
    first: &Request<'_>,
    requests: &[Request<'_>],
    faults: &[InjectedFault],
) -> (Vec<Sent>, Vec<RecordedCall>) {
    let mut first = pin!(first.send(store));
    table.proxy.take_calls();
    table.proxy.hold(&mut first, |calls| !calls.is_empty()).await;
    let mut sent = pin!(join_all(requests.iter().map(|request| request.send(store))));
    assert!(poll_once(&mut sent).await.is_pending());
    for fault in faults {
        table.proxy.fail_next(APPEND, fault.clone());
    }
    let (first, sent) = tokio::join!(first, sent);
    first.unwrap();
    (sent, table.proxy.take_calls())
}

pub(crate) async fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    poll_fn(|context| Poll::Ready(Pin::new(&mut *future).poll(context))).await
}

pub(crate) fn operations(calls: &[RecordedCall]) -> Vec<&str> {
    calls.iter().map(|call| call.operation.as_str()).collect()
}

pub(crate) fn version(sent: &Sent) -> u64 {
    match sent {
        Ok(Transacted::Decided(response)) => response.version,
        other => panic!("{other:?}"),
    }
}

/// Every response with an event is that of a stored event, and the events have no gap.
pub(crate) async fn assert_stored(table: &TestTable, account: &Subject, sent: &[Sent], end: u64) {
    let events = table.rows(&account.key, keys::EVENT_PREFIX).await;
    let numbers: Vec<_> = events.iter().map(|row| number(row, "seqNum")).collect();
    assert_eq!(numbers, (1..=end).collect::<Vec<_>>());
    for response in sent.iter().flatten() {
        let Transacted::Decided(response) = response else { continue };
        if response.body.is_empty() {
            continue;
        }
        let event = &events[usize::try_from(response.version).unwrap() - 1];
        assert_eq!(text(event, "eventId"), response.body);
    }
    let times: Vec<_> = events.iter().map(|row| (text(row, "occurredAt"), text(row, "eventId"))).collect();
    assert!(times.is_sorted(), "{times:?}");
    assert_eq!(number(&account.metadata(table).await, "currentSeqNum"), end);
    let (cold, rebuilt) = (account.load(&table.direct_store()).await, account.rebuild(&table.direct_store()).await);
    assert_eq!((cold.version(), state(&cold)), (end, state(&rebuilt)));
}

#[tokio::test]
async fn requests_that_wait_for_an_append_are_appended_together_in_the_order_of_arrival() {
    let table = TestTable::new().await;
    let store = table.store();
    let account = ledger(&store, "1", 1).await;
    let payments: Vec<_> = (1..=16).map(|amount| Request::payment(&account, amount)).collect();
    let (sent, calls) = send_together(&table, &store, &payments, &[]).await;
    assert_eq!(operations(&calls), [APPEND]);
    // One update of the metadata at 2 units, and for each event 2 units and one of the index.
    assert_eq!((calls[0].table_units, calls[0].index_units), (2.0 + 2.0 * 16.0, 16.0));
    assert_eq!(sent.iter().map(version).collect::<Vec<_>>(), (3..=18).collect::<Vec<_>>());
    assert!(payments.iter().zip(2..).all(|(payment, version)| payment.decided_on() == [version]));
    assert_stored(&table, &account, &sent, 18).await;
    // For readers, each command is an append of its own.
    for row in table.rows(&account.key, keys::EVENT_PREFIX).await {
        assert!(!row.contains_key("appendEnd"), "{row:?}");
    }
    // The state is cached.
    Request::payment(&account, 1).send(&store).await.unwrap();
    assert_eq!(table.operations(), [APPEND]);
}

#[tokio::test]
async fn each_request_of_a_group_has_its_own_result() {
    let table = TestTable::new().await;
    let store = table.store();
    let account = ledger(&store, "1", 1).await;
    let earlier = Request::payment(&account, 5).with_key("used", "d0");
    earlier.send(&store).await.unwrap();
    let requests = [
        Request::payment(&account, 1).with_key("k1", "d1"),
        // The rejection is recorded.
        Request::payment(&account, -5_000),
        Request { expected_version: Some(5), ..Request::payment(&account, 2) },
        Request { expected_version: Some(5), ..Request::payment(&account, 3) },
        Request::new(&account, "OpenAccount", json!({})),
        Request::payment(&account, 4),
    ];
    let (sent, calls) = send_together(&table, &store, &requests, &[]).await;
    assert_eq!(operations(&calls), [APPEND]);
    let Ok(Transacted::Decided(rejected)) = &sent[1] else { panic!("{sent:?}") };
    assert_eq!((rejected.status, rejected.version), (422, 5));
    assert_eq!([version(&sent[0]), version(&sent[2]), version(&sent[5])], [4, 6, 7]);
    // What appends nothing is not read again either, because the append has checked the state.
    assert!(matches!(&sent[3], Err(TransactError::Conflict { expected: 5, actual: 6 })), "{sent:?}");
    assert!(matches!(&sent[4], Err(TransactError::Decide(text)) if text == "it exists already"), "{sent:?}");
    assert_stored(&table, &account, &sent, 7).await;
    let again = requests[0].send(&store).await.unwrap();
    let Ok(Transacted::Decided(first)) = &sent[0] else { panic!("{sent:?}") };
    assert_eq!(again, Transacted::Replayed(first.clone()));
}

#[tokio::test]
async fn commands_that_do_not_fit_one_transaction_are_appended_by_the_next() {
    let table = TestTable::new().await;
    let store = table.store();
    let account = ledger(&store, "1", 1).await;
    let payments: Vec<_> = (0..150).map(|_| Request::payment(&account, 1)).collect();
    let (sent, calls) = send_together(&table, &store, &payments, &[]).await;
    let items: Vec<_> = calls.iter().map(|call| call.request["TransactItems"].as_array().unwrap().len()).collect();
    assert_eq!(items, [100, 52]);
    assert_stored(&table, &account, &sent, 152).await;
    // Events of 30 KB: 13 of them fit the 400 KB that a partition accepts in less than a second.
    let desc = "A".repeat(30_000);
    let large = |_| Request::new(&account, "RecordTransaction", json!({"desc": desc, "amount": 1}));
    let mut requests: Vec<_> = (0..15).map(large).collect();
    // This one is too large for any transaction.
    requests.push(Request::new(&account, "RecordTransaction", json!({"desc": "A".repeat(500 * 1024), "amount": 1})));
    let (sent, calls) = send_together(&table, &store, &requests, &[]).await;
    let items: Vec<_> = calls.iter().map(|call| call.request["TransactItems"].as_array().unwrap().len()).collect();
    assert_eq!(items, [14, 3]);
    assert!(matches!(&sent[15], Err(TransactError::TooLarge { .. })), "{:?}", sent[15]);
    assert_stored(&table, &account, &sent, 168).await;
}

/// A request that has joined a group trusts no state that another one has read, perhaps before it arrived.
#[tokio::test]
async fn state_that_another_request_has_read_decides_no_conflict() {
    let table = TestTable::new().await;
    let account = ledger(&table.direct_store(), "1", 1).await;
    let store = table.store();
    let first = Request::payment(&account, 1);
    let second = Request { expected_version: Some(2), ..Request::payment(&account, 2) };
    for _ in 0..2 {
        table.proxy.fail_next(APPEND, InjectedFault::Cancel { codes: vec!["ThrottlingError"] });
    }
    let is_sent = |calls: &[RecordedCall]| calls.iter().any(|call| call.operation == APPEND);
    let mut first = Box::pin(first.send(&store));
    table.proxy.hold(&mut first, is_sent).await;
    // Another process writes the version that the second request names.
    ledger(&table.direct_store(), "1", 2).await;
    let mut second = pin!(second.send(&store));
    assert!(poll_once(&mut second).await.is_pending());
    table.proxy.hold(pin!(join(&mut first, &mut second)), is_sent).await;
    drop(first);
    assert_eq!(version(&second.await), 3);
}

/// A request that only reads its stored response does not delay the others.
#[tokio::test]
async fn request_that_reads_a_stored_response_leaves_the_queue() {
    let table = TestTable::new().await;
    let store = table.store();
    let account = ledger(&store, "1", 1).await;
    let refused = Request::new(&account, "OpenAccount", json!({})).with_key("k1", "d1");
    let mut refused = pin!(refused.send(&store));
    table.proxy.fail_next("GetItem", InjectedFault::Hang);
    table.proxy.hold(&mut refused, |calls| calls.iter().any(|call| call.operation == "GetItem")).await;
    assert_eq!(version(&Request::payment(&account, 1).send(&store).await), 2);
    assert!(poll_once(&mut refused).await.is_pending());
}

#[tokio::test]
async fn cancelled_request_takes_no_other_with_it() {
    // Each of three requests is cancelled after this number of polls of all.
    for cancelled in 0..3 {
        for polls in 1..12 {
            let table = TestTable::new().await;
            let store = table.store();
            let account = ledger(&store, "1", 1).await;
            let requests = [1, 2, 3].map(|amount| Request::payment(&account, amount));
            let first = Request::payment(&account, 1);
            let mut first = pin!(first.send(&store));
            table.proxy.take_calls();
            table.proxy.hold(&mut first, |calls| !calls.is_empty()).await;
            let mut running: Vec<(Option<BoxFuture<'_, Sent>>, Option<Sent>)> =
                requests.iter().map(|request| (Some(request.send(&store).boxed()), None)).collect();
            // The requests wait for the first one.
            for request in running.iter_mut().filter_map(|(request, _)| request.as_mut()) {
                assert!(poll_once(request).await.is_pending());
            }
            first.await.unwrap();
            for _ in 0..polls {
                for (request, sent) in &mut running {
                    let Some(running) = request else { continue };
                    if let Poll::Ready(ready) = poll_once(running).await {
                        (*request, *sent) = (None, Some(ready));
                    }
                }
                tokio::time::sleep(Duration::from_micros(300)).await;
            }
            running[cancelled].0 = None;
            let rest = running.into_iter().map(|(request, sent)| async move {
                match request {
                    Some(request) => Some(request.await),
                    None => sent,
                }
            });
            let sent = join_all(rest).await;
            let sent: Vec<_> = sent.into_iter().flatten().collect();
            assert!(sent.len() >= 2, "{sent:?}");
            assert!(sent.iter().all(Result::is_ok), "{sent:?}");
            let end = account.load(&table.direct_store()).await.version();
            assert_stored(&table, &account, &sent, end).await;
            assert_eq!(Request::payment(&account, 1).send(&store).await.map(|_| ()).ok(), Some(()));
        }
    }
}

#[tokio::test]
async fn request_without_time_takes_no_other_with_it() {
    let table = TestTable::new().await;
    let store = table.store();
    let account = ledger(&store, "1", 1).await;
    let requests = [
        Request { deadline: Instant::now() + Duration::from_millis(300), ..Request::payment(&account, 1) },
        Request::payment(&account, 2),
        Request::payment(&account, 3),
    ];
    // The call of the group has no response, and its time limit is longer than the time of the first request.
    let (sent, _) = send_together(&table, &store, &requests, &[InjectedFault::Hang]).await;
    assert!(matches!(&sent[0], Err(TransactError::OutcomeUnknown { after: 2, .. })), "{sent:?}");
    assert_eq!([version(&sent[1]), version(&sent[2])], [3, 4]);
    assert_stored(&table, &account, &sent, 4).await;
}

#[tokio::test]
async fn request_that_is_not_polled_does_not_hold_up_those_before_it() {
    let table = TestTable::new().await;
    let store = table.store();
    let account = ledger(&store, "1", 1).await;
    let payments = [1, 2, 3].map(|amount| Request::payment(&account, amount));
    let mut first = pin!(payments[0].send(&store));
    let mut second = pin!(payments[1].send(&store));
    let mut third = pin!(payments[2].send(&store));
    assert!(poll_once(&mut first).await.is_pending());
    assert!(poll_once(&mut second).await.is_pending());
    assert!(poll_once(&mut third).await.is_pending());
    // The third request has its turn while only the second one is polled.
    let sent = [first.await, second.await, third.await];
    assert_eq!(sent.each_ref().map(version), [2, 3, 4]);
    assert_stored(&table, &account, &sent, 4).await;
}

#[tokio::test]
async fn request_that_panics_or_rebuilds_takes_no_other_with_it() {
    let table = TestTable::new().await;
    let store = table.store();
    let account = ledger(&store, "1", 1).await;
    let requests = [
        Request::payment(&account, 1),
        Request { panics: true, ..Request::payment(&account, 2) },
        Request { policy: LoadPolicy::Rebuild, ..Request::payment(&account, 3) },
        Request::payment(&account, 4),
    ];
    let first = Request::payment(&account, 1);
    let mut first = pin!(first.send(&store));
    assert!(poll_once(&mut first).await.is_pending());
    let caught = requests.iter().map(|request| AssertUnwindSafe(request.send(&store)).catch_unwind());
    let mut sent = pin!(join_all(caught));
    assert!(poll_once(&mut sent).await.is_pending());
    let (first, sent) = tokio::join!(first, sent);
    first.unwrap();
    assert!(sent[1].is_err());
    let sent: Vec<_> = sent.into_iter().flatten().collect();
    assert_eq!(sent.iter().map(version).collect::<Vec<_>>(), [3, 4, 5]);
    assert_stored(&table, &account, &sent, 5).await;
}
