//! Decisions over several aggregates: calls and units, races, unknown outcomes, claims, and places in queues.

use std::borrow::Cow;
use std::sync::Mutex;
use std::time::Duration;

use daybook_decider::{
    Addressed, AggregateKey, CommandError, CommandRequest, DecisionInput, Decisions, Folded, Involved, JointError,
    Json, Model, Registry, joint,
};
use daybook_event_store::{
    CommandResponse, Decide, EventStore, IdempotencyKey, LoadPolicy, ResponseDetail, TransactError, TransactOptions,
    Transacted, Undecided,
};
use daybook_test_support::clock::next_input;
use daybook_test_support::commands::deadline;
use daybook_test_support::fault_proxy::{InjectedFault, RecordedCall};
use daybook_test_support::node::{Node, State, tag_claim};
use daybook_test_support::row::text;
use daybook_test_support::table::{TABLE, TestTable};
use futures_util::future::{join, join_all};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

const APPEND: &str = "TransactWriteItems";

fn registry() -> Registry {
    Registry::new().with::<Node>().unwrap()
}

pub(crate) fn key(id: &str) -> AggregateKey {
    AggregateKey::new("node", id)
}

/// A command to a node.
pub(crate) fn to(id: &str, data: Value) -> Addressed<'static> {
    command(id, "Do", data)
}

pub(crate) fn command(id: &str, command: &str, data: Value) -> Addressed<'static> {
    let command = CommandRequest { command: command.to_owned(), data: Json::of(&data).unwrap() };
    Addressed { to: Cow::Owned(key(id)), commands: vec![command].into() }
}

/// A plan that sends another one to each of these nodes.
pub(crate) fn sends<const N: usize>(ids: [&str; N], plan: &Value) -> Value {
    let sent: Vec<_> = ids.iter().map(|id| json!([id, {"command": "Do", "data": plan}])).collect();
    json!({ "send": sent })
}

/// A request.
pub(crate) struct Request {
    registry: Registry,
    commands: Vec<Addressed<'static>>,
    key: Option<(&'static str, &'static str)>,
    deadline: Instant,
    decisions: Mutex<usize>,
}

pub(crate) type Sent = Result<Transacted, TransactError<String>>;

impl Request {
    pub(crate) fn new(commands: Vec<Addressed<'static>>) -> Self {
        Self { registry: registry(), commands, key: None, deadline: deadline(), decisions: Mutex::default() }
    }

    pub(crate) async fn send(&self, store: &EventStore) -> Sent {
        let own = &self.commands[0];
        let options = TransactOptions {
            policy: LoadPolicy::Incremental,
            creates: own.commands[0].command == "Make",
            expected_version: None,
            idempotency: self.key.map(|(key, digest)| IdempotencyKey { key, digest, ttl: Duration::from_hours(24) }),
            deadline: self.deadline,
        };
        store.transact(self.registry.get("node").unwrap(), &own.to, self, &options).await
    }

    fn decisions(&self) -> usize {
        *self.decisions.lock().unwrap()
    }
}

impl Decide for Request {
    type Error = String;

    fn decide(&self, before: &Folded, involved: &Involved) -> Result<Decisions, Undecided<String>> {
        let input = DecisionInput { involved: involved.clone(), ..next_input() };
        match joint::decide(&self.registry, before, &self.commands, &input) {
            Err(JointError { error: CommandError::Needs(needs), .. }) => Err(Undecided::Needs(needs)),
            decided => {
                *self.decisions.lock().unwrap() += 1;
                decided.map_err(|error| error.to_string().into())
            }
        }
    }

    fn model(&self, aggregate_type: &str) -> Option<&dyn Model> {
        self.registry.get(aggregate_type)
    }

    /// A response whose body are the ids of all events.
    fn respond(&self, _: &Folded, decisions: &Decisions, _: ResponseDetail) -> Result<CommandResponse, String> {
        let all = std::iter::once(&decisions.own).chain(decisions.others.iter().map(|(_, other)| other));
        let ids: Vec<_> = all.flat_map(|of| &of.events).map(|event| event.event_id.to_string()).collect();
        let status = match &decisions.own.rejection {
            Some(rejection) if ids.is_empty() => return Err(rejection.name.to_owned()),
            Some(_) => 422,
            None => 200,
        };
        let version = decisions.own.after.version();
        Ok(CommandResponse { status, version, state_version: 1, body: ids.join(" ") })
    }
}

pub(crate) async fn send(store: &EventStore, commands: Vec<Addressed<'static>>) -> Sent {
    Request::new(commands).send(store).await
}

/// Makes nodes with this total, and caches them.
pub(crate) async fn make(store: &EventStore, ids: &[&str], total: i64) {
    for id in ids {
        done(&send(store, vec![command(id, "Make", json!({"add": [total]}))]).await);
    }
}

#[track_caller]
pub(crate) fn done(sent: &Sent) {
    assert!(matches!(sent, Ok(Transacted::Decided(response)) if response.status == 200), "{sent:?}");
}

/// The name of a rejection that is not recorded.
#[track_caller]
fn rejected(sent: &Sent) -> &str {
    match sent {
        Err(TransactError::Decide(name)) => name,
        other => panic!("{other:?}"),
    }
}

/// The state in the table.
async fn state(table: &TestTable, id: &str) -> State {
    let registry = registry();
    let loaded = table.direct_store().load(registry.get("node").unwrap(), &key(id)).await.unwrap();
    loaded.state.read().unwrap()
}

pub(crate) async fn total(table: &TestTable, id: &str) -> i64 {
    state(table, id).await.total
}

async fn holder(table: &TestTable, tag: &str) -> Option<String> {
    table.direct_store().claim(&tag_claim(tag)).await.unwrap().map(|row| row.holder().id)
}

fn appends(calls: &[RecordedCall]) -> usize {
    calls.iter().filter(|call| call.operation == APPEND).count()
}

#[tokio::test]
async fn other_aggregate_costs_what_it_costs_alone_and_no_call() {
    let table = TestTable::new().await;
    let store = table.store();
    make(&store, &["a", "b", "c", "d"], 0).await;
    let cost = async |plan: Value| {
        table.proxy.take_calls();
        let sent = send(&store, vec![to("a", plan)]).await;
        let calls = table.proxy.take_calls();
        assert_eq!(calls.iter().map(|call| call.operation.as_str()).collect::<Vec<_>>(), [APPEND], "{sent:?}");
        (calls[0].table_units, calls[0].index_units)
    };
    let add = json!({"add": [1]});
    let (rows, index) = cost(add.clone()).await;
    let mut both = sends(["b", "c"], &add);
    both["add"] = json!([1]);
    assert_eq!(cost(both).await, (3.0 * rows, 3.0 * index));
    // One that is only looked at is a check, also in a decision that appends nothing.
    assert_eq!(cost(json!({"add": [1], "look": ["b", "d"]})).await, (rows + 4.0, index));
    assert_eq!(cost(json!({"add": [1], "look": ["b"], "most": 0})).await, (4.0, 0.0));
    assert_eq!(cost(json!({"look": ["b"]})).await, (4.0, 0.0));
    assert_eq!([total(&table, "a").await, total(&table, "b").await, total(&table, "c").await], [3, 1, 1]);
}

#[tokio::test]
async fn requests_of_one_process_for_the_same_other_lose_no_race() {
    let table = TestTable::new().await;
    let store = table.store();
    let ids = ["a", "c", "d", "e", "f"];
    make(&store, &ids, 0).await;
    make(&store, &["b"], 0).await;
    table.proxy.take_calls();
    let sent = join_all(ids.map(|id| send(&store, vec![to(id, sends(["b"], &json!({"add": [1]})))]))).await;
    sent.iter().for_each(done);
    let calls = table.proxy.take_calls();
    assert_eq!((calls.len(), appends(&calls), total(&table, "b").await), (5, 5, 5));
}

#[tokio::test]
async fn change_of_an_involved_aggregate_repeats_the_decision() {
    let table = TestTable::new().await;
    let (store, beside) = (table.store(), table.direct_store());
    make(&store, &["a", "b"], 0).await;
    let request = Request::new(vec![to("a", json!({"look": ["b"], "add": [1], "most": 50, "records": true}))]);
    done(&request.send(&store).await);
    done(&send(&beside, vec![to("b", json!({"add": [100]}))]).await);
    // Accepted on the cached state, and rejected on the current one.
    table.proxy.take_calls();
    let sent = request.send(&store).await;
    assert!(matches!(&sent, Ok(Transacted::Decided(response)) if response.status == 422), "{sent:?}");
    assert_eq!(table.operations(), ["Query", APPEND, APPEND]);
    assert_eq!((total(&table, "a").await, state(&table, "a").await.refused), (1, 1));
    // And the other way around, for a rejection that is not recorded.
    done(&send(&beside, vec![to("b", json!({"add": [-100]}))]).await);
    done(&send(&store, vec![to("a", json!({"look": ["b"], "add": [1], "most": 50}))]).await);
    done(&send(&beside, vec![command("b", "Close", json!({}))]).await);
    assert_eq!(rejected(&send(&store, vec![to("a", sends(["b"], &json!({})))]).await), "it has been deleted");
}

#[tokio::test]
async fn two_decisions_that_look_at_each_other_are_not_both_appended() {
    let table = TestTable::new().await;
    let (one, other) = (table.store(), table.store());
    let plan = |look: &str| json!({"look": [look], "add": [1], "most": 1});
    for round in 0..10 {
        let (a, b) = (&*format!("a{round}"), &*format!("b{round}"));
        make(&one, &[a, b], 0).await;
        // Both processes know both.
        for id in [a, b] {
            done(&send(&other, vec![to(id, json!({"look": [a, b]}))]).await);
        }
        let (first, second) = (Request::new(vec![to(a, plan(b))]), Request::new(vec![to(b, plan(a))]));
        let (first, second) = if round == 0 {
            (first.send(&one).await, second.send(&other).await)
        } else {
            join(first.send(&one), second.send(&other)).await
        };
        assert_ne!(first.is_ok(), second.is_ok(), "{first:?} {second:?}");
        assert_eq!(total(&table, a).await + total(&table, b).await, 1);
    }
}

#[tokio::test]
async fn creation_of_another_aggregate_that_exists_is_its_conflict_in_each_order() {
    let table = TestTable::new().await;
    let store = table.store();
    make(&store, &["a", "b"], 0).await;
    let cold = table.store();
    let make_b = |plan: Value| command("b", "Make", plan);
    for commands in [
        vec![to("a", json!({"add": [1]})), make_b(json!({}))],
        vec![to("a", json!({"add": [1]})), make_b(json!({"most": -1}))],
        vec![make_b(json!({})), to("a", json!({"most": -1}))],
        vec![to("a", json!({})), make_b(json!({})), to("a", json!({"most": -1}))],
    ] {
        assert_eq!(rejected(&send(&cold, commands).await), "it exists already");
    }
    assert_eq!((total(&table, "a").await, total(&table, "b").await), (0, 0));
}

#[tokio::test]
async fn unknown_outcome_is_resolved_by_an_event_of_another_aggregate() {
    let table = TestTable::new().await;
    let (store, beside) = (table.store(), table.direct_store());
    make(&store, &["a", "b"], 0).await;
    let request = || Request::new(vec![to("a", sends(["b"], &json!({"add": [1]})))]);
    for (fault, expected) in [(InjectedFault::BreakAfter, 1), (InjectedFault::BreakBefore, 2)] {
        table.proxy.fail_next(APPEND, fault);
        done(&request().send(&store).await);
        assert_eq!(total(&table, "b").await, expected);
    }
    // The cache contains what was resolved.
    table.proxy.take_calls();
    done(&request().send(&store).await);
    assert_eq!(table.operations(), [APPEND]);
    // Overtaken by another process: the first attempt is not stored, and the next one is.
    table.proxy.take_calls();
    table.proxy.fail_next(APPEND, InjectedFault::BreakBefore);
    let overtaken = request();
    let mut sending = Box::pin(overtaken.send(&store));
    table.proxy.hold(&mut sending, |calls| appends(calls) == 1).await;
    done(&send(&beside, vec![to("b", json!({"add": [10]}))]).await);
    done(&sending.await);
    assert_eq!(total(&table, "b").await, 14);
}

/// The nodes in the table.
async fn nodes(table: &TestTable) -> usize {
    let rows = table.raw.scan().table_name(TABLE).into_paginator().items().send();
    let rows: Vec<_> = rows.collect::<Result<_, _>>().await.unwrap();
    rows.iter().filter(|row| text(row, "sk") == "#METADATA").count()
}

#[tokio::test]
async fn unknown_outcome_of_an_append_to_a_new_aggregate_is_not_appended_to_another_one() {
    let table = TestTable::new().await;
    let store = table.store();
    make(&store, &["a"], 0).await;
    // Each decision has another id for the new node, and changes nothing else.
    let request = || Request::new(vec![to("a", json!({"makes_new": true}))]);
    table.proxy.fail_next(APPEND, InjectedFault::BreakAfter);
    done(&request().send(&store).await);
    assert_eq!(nodes(&table).await, 2);
    table.proxy.fail_next(APPEND, InjectedFault::BreakBefore);
    let sent = request().send(&store).await;
    assert!(matches!(&sent, Err(TransactError::OutcomeUnknown { of: Some(_), after: 0, .. })), "{sent:?}");
    assert_eq!(nodes(&table).await, 2);
}

#[tokio::test]
async fn aggregates_exchange_claims_in_one_transaction() {
    let table = TestTable::new().await;
    let store = table.store();
    make(&store, &["a", "b", "c"], 0).await;
    let tags = |id: &str, tags: &[&str]| to(id, json!({ "tags": tags }));
    done(&send(&store, vec![tags("a", &["x"]), tags("b", &["y", "z"])]).await);
    done(&send(&store, vec![tags("a", &["y"]), tags("b", &["x", "z"])]).await);
    assert_eq!([holder(&table, "x").await.unwrap(), holder(&table, "y").await.unwrap()], ["b", "a"]);
    // Around three, and first taken, then released.
    done(&send(&store, vec![tags("a", &["x"]), tags("c", &["y", "z"]), tags("b", &[])]).await);
    let mut holders = Vec::new();
    for tag in ["x", "y", "z"] {
        holders.push(holder(&table, tag).await.unwrap());
    }
    assert_eq!(holders, ["a", "c", "c"]);
    // Two that take the same one, and one that is taken by an aggregate that does not give it.
    for commands in [vec![tags("a", &["x", "new"]), tags("b", &["new"])], vec![tags("a", &["x"]), tags("b", &["z"])]] {
        let sent = send(&store, commands).await;
        assert!(matches!(&sent, Err(TransactError::ClaimTaken { .. })), "{sent:?}");
    }
    assert_eq!(holder(&table, "new").await, None);
}

#[tokio::test]
async fn claim_that_two_aggregates_release_by_an_outdated_state_is_released_once() {
    let table = TestTable::new().await;
    let (store, beside) = (table.store(), table.direct_store());
    let tags = |id: &str, tags: &[&str]| to(id, json!({ "tags": tags }));
    make(&store, &["a"], 0).await;
    done(&send(&store, vec![tags("a", &["x"])]).await);
    // The claim passes to another aggregate, which is not in the cache.
    make(&beside, &["b"], 0).await;
    done(&send(&beside, vec![tags("a", &[]), tags("b", &["x"])]).await);
    for commands in [vec![tags("a", &["y"]), tags("b", &["z"])], vec![tags("b", &["x"]), tags("a", &[])]] {
        done(&send(&store, commands).await);
    }
    let mut holders = Vec::new();
    for tag in ["x", "y", "z"] {
        holders.push(holder(&table, tag).await);
    }
    assert_eq!(holders, [Some("b".to_owned()), None, None]);
}

#[tokio::test]
async fn claim_that_is_taken_after_a_decision_has_seen_it_free_repeats_the_decision() {
    let table = TestTable::new().await;
    let (store, beside) = (table.store(), table.direct_store());
    make(&store, &["a", "b", "c"], 0).await;
    done(&send(&beside, vec![to("c", json!({"add": [5]}))]).await);
    for (tag, plan, expected, decisions) in [
        // It takes the claim itself, and it only looks. Then the cached state of the new holder is outdated too.
        ("x", json!({"find": ["x"], "most": 0, "tags": ["x"]}), Some("TooMuch"), 2),
        ("y", json!({"find": ["y"], "add": [1], "most": 100}), None, 3),
    ] {
        table.proxy.take_calls();
        let request = Request::new(vec![to("a", plan)]);
        let mut sending = Box::pin(request.send(&store));
        table.proxy.hold(&mut sending, |calls| calls.iter().any(|call| call.operation == "GetItem")).await;
        done(&send(&beside, vec![to("c", json!({ "tags": ["x", tag] }))]).await);
        let sent = sending.await;
        match expected {
            Some(name) => assert_eq!(rejected(&sent), name),
            None => done(&sent),
        }
        assert_eq!(request.decisions(), decisions);
    }
    assert_eq!(state(&table, "a").await.seen, [Some(5)]);
    // A decision that takes it all the same gets the conflict.
    let sent = send(&store, vec![to("a", json!({"find": ["x"], "tags": ["x"]}))]).await;
    assert!(matches!(&sent, Err(TransactError::ClaimTaken { holder, .. }) if holder.id == "c"), "{sent:?}");
}

#[tokio::test]
async fn idempotency_key_is_for_the_whole_request() {
    let table = TestTable::new().await;
    let store = table.store();
    make(&store, &["a", "b"], 0).await;
    let request = |digest: &'static str, by: i64| {
        let mut plan = sends(["b"], &json!({"add": [by]}));
        plan["look"] = json!(["b"]);
        Request { key: Some(("key", digest)), ..Request::new(vec![to("a", plan)]) }
    };
    table.proxy.fail_next(APPEND, InjectedFault::BreakAfter);
    done(&request("1", 1).send(&store).await);
    for store in [&store, &table.store()] {
        let sent = request("1", 1).send(store).await;
        assert!(matches!(&sent, Ok(Transacted::Replayed(_))), "{sent:?}");
    }
    table.proxy.take_calls();
    let reused = Request { deadline: Instant::now() + Duration::from_secs(3), ..request("2", 2) };
    let sent = reused.send(&store).await;
    assert!(matches!(&sent, Err(TransactError::KeyReused)), "{sent:?}");
    assert!(appends(&table.proxy.take_calls()) <= 2);
    assert_eq!(total(&table, "b").await, 1);
}

#[tokio::test]
async fn requests_that_involve_each_other_in_all_orders_end() {
    let table = TestTable::new().await;
    let (one, other) = (table.store(), table.store());
    let ids = ["a", "b", "c"];
    make(&one, &ids, 0).await;
    let mut requests = Vec::new();
    for round in 0..3 {
        for from in ids {
            for of in ids {
                requests.push(Request::new(vec![to(from, sends([of], &json!({"add": [1]})))]));
            }
            // Beside those that join a group.
            requests.push(Request::new(vec![to(from, json!({"add": [1]}))]));
        }
        requests.push(Request::new(vec![
            to(ids[round], json!({})),
            to("c", json!({"add": [1]})),
            to("a", json!({"add": [1]})),
        ]));
    }
    let sent = join_all(
        requests.iter().zip([&one, &one, &other].into_iter().cycle()).map(|(request, store)| request.send(store)),
    );
    timeout(Duration::from_secs(30), sent).await.unwrap().iter().for_each(done);
    let mut sum = 0;
    for id in ids {
        sum += total(&table, id).await;
    }
    assert_eq!(sum, 3 * (9 + 3 + 2));
}

#[tokio::test]
async fn cancelled_or_failed_request_leaves_no_place() {
    let table = TestTable::new().await;
    let store = table.store();
    make(&store, &["a", "b", "c"], 0).await;
    let request = || Request::new(vec![to("b", sends(["a", "c"], &json!({"add": [1]})))]);
    let is_free = async || {
        for id in ["a", "b", "c"] {
            let plain = send(&store, vec![to(id, json!({"add": [10]}))]);
            done(&timeout(Duration::from_secs(5), plain).await.unwrap());
        }
    };
    // Cancelled while its append is in progress, with another one behind it that is cancelled while it waits.
    table.proxy.fail_next(APPEND, InjectedFault::Hang);
    let (first, second) = (request(), request());
    let both = join(first.send(&store), second.send(&store));
    timeout(Duration::from_millis(200), both).await.unwrap_err();
    is_free().await;
    // The deadline ends the wait behind one that hangs.
    table.proxy.fail_next(APPEND, InjectedFault::Hang);
    let late = Request { deadline: Instant::now() + Duration::from_millis(100), ..request() };
    let hanging = request();
    let mut hanging = Box::pin(hanging.send(&store));
    let sent = tokio::select! {
        biased;
        _ = &mut hanging => panic!("it hangs"),
        sent = late.send(&store) => sent,
    };
    assert!(matches!(&sent, Err(TransactError::Contended)), "{sent:?}");
    drop(hanging);
    is_free().await;
    // An error of the decision, and one of the call.
    let panics = sends(["a", "c"], &json!({"panics": true}));
    rejected(&send(&store, vec![to("b", panics)]).await);
    table.proxy.fail_next(APPEND, InjectedFault::Refuse { status: 400, code: "AccessDeniedException" });
    request().send(&store).await.unwrap_err();
    is_free().await;
    assert_eq!(total(&table, "a").await, 30);
}
