//! Random interleavings of commands and of the function's runs, which may be concurrent, late, repeated, in reverse order,
//! partial or crashed: a snapshot is never wrong and never becomes older.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[expect(dead_code, reason = "the other tests use the rest")]
mod support;

use std::pin::Pin;
use std::sync::Arc;

use daybook_decider::{Folded, Json};
use daybook_event_store::LoadOptions;
use daybook_table::{AggregateKey, SnapshotItem, StoredText, keys};
use daybook_test_support::row::number;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};
use support::{Setup, handle};

/// The value of SNAPSHOT_EVERY: so low that nearly every command makes a snapshot due.
const EVERY: u64 = 2;

#[derive(Clone, Debug)]
enum Step {
    /// Appends these commands in one transaction.
    Commands(Vec<Command>),
    /// Begins a run on an existing or a new instance, with some of the records so far.
    Begin { instance: Option<Index>, records: Vec<Index> },
    /// Continues a run until its next call has a response.
    Advance(Index),
    /// Ends a run at its current call.
    Crash(Index),
}

type Command = (&'static str, Value);

fn step(command: BoxedStrategy<Command>) -> impl Strategy<Value = Step> {
    let index = any::<Index>;
    prop_oneof![
        4 => vec(command, 1..5).prop_map(Step::Commands),
        3 => (proptest::option::of(index()), vec(index(), 1..4))
            .prop_map(|(instance, records)| Step::Begin { instance, records }),
        12 => index().prop_map(Step::Advance),
        1 => index().prop_map(Step::Crash),
    ]
}

fn on_an_account() -> BoxedStrategy<Command> {
    prop_oneof![
        1 => "[a-c]?".prop_map(|name| ("UpdateOwner", json!({"ownerFirst": name, "ownerLast": "Brown"}))),
        // Some of them are rejected, and the rejection is an event.
        6 => (-900..700_i64).prop_map(|amount| ("RecordTransaction", json!({"desc": "", "amount": amount}))),
    ]
    .boxed()
}

fn on_a_todo() -> BoxedStrategy<Command> {
    prop_oneof![
        20 => "[a-z]{1,9}".prop_map(|title| ("UpdateTodo", json!({"title": title, "message": ""}))),
        1 => Just(("DeleteTodo", json!({}))),
    ]
    .boxed()
}

fn on_an_order() -> BoxedStrategy<Command> {
    prop_oneof![
        Just(("ProcessPayment", json!({"amount": 4_500}))),
        Just(("ShipOrder", json!({"trackingNumber": "T-1"}))),
        Just(("DeliverOrder", json!({}))),
        Just(("RefundOrder", json!({"amount": 1}))),
    ]
    .boxed()
}

struct Run(Pin<Box<dyn Future<Output = ()>>>);

impl Run {
    /// Continues the run until another call has a response. Returns `true` if the run has ended.
    async fn advance(&mut self, setup: &Setup) -> bool {
        setup.table.proxy.take_calls();
        setup.table.proxy.advance(&mut self.0, |calls| !calls.is_empty()).await.is_some()
    }
}

/// The aggregate after each of its events, folded from the first.
async fn history(setup: &Setup, key: &AggregateKey) -> Vec<(Folded, Json)> {
    let model = setup.model(key);
    let mut folded = model.before_first_event();
    let mut history = vec![(folded.clone(), model.state(&folded).unwrap())];
    for event in setup.store.events(key, 0, 10_000).await.unwrap().items {
        folded = model.fold(folded, &[event]).unwrap();
        history.push((folded.clone(), model.state(&folded).unwrap()));
    }
    history
}

/// Asserts that the snapshot is the fold of the events up to its version. Returns its version.
async fn assert_right(setup: &Setup, key: &AggregateKey, history: &[(Folded, Json)]) -> u64 {
    let mut latest = 0;
    if let Some(row) = setup.table.row(key, keys::SNAPSHOT).await {
        latest = number(&row, "lastSeqNum");
        let stored: SnapshotItem = serde_dynamo::from_item(row).unwrap();
        let (folded, state) = &history[usize::try_from(latest).unwrap()];
        assert_eq!(stored.state, StoredText::Text(state.text().to_owned()));
        assert_eq!(stored.message_seq, folded.message_seq());
    }
    latest
}

async fn play(aggregate_type: &str, first: Command, steps: Vec<Step>) {
    let setup = Setup::with(EVERY).await;
    let key = AggregateKey::new(aggregate_type, "1");
    setup.try_commands(&key, &[first]).await.unwrap();
    let mut instances = Vec::new();
    let mut runs: Vec<Run> = Vec::new();
    let mut past = history(&setup, &key).await;
    let mut latest = 0;
    for step in steps {
        match step {
            Step::Commands(commands) => {
                // Commands that do not reach the rules, or whose rejection is not recorded, append nothing.
                let _ = setup.try_commands(&key, &commands).await;
                past = history(&setup, &key).await;
            }
            Step::Begin { instance, records } => {
                let due = setup.due_records(&key, 1).await;
                if due.is_empty() {
                    continue;
                }
                let records: Vec<_> = records.into_iter().map(|index| index.get(&due).clone()).collect();
                let snapshotter = match instance.filter(|_| !instances.is_empty()) {
                    Some(warm) => Arc::clone(warm.get(&instances)),
                    None => {
                        instances.push(Arc::new(setup.snapshotter()));
                        Arc::clone(&instances[instances.len() - 1])
                    }
                };
                runs.push(Run(Box::pin(async move {
                    assert_eq!(handle(&snapshotter, &records).await.unwrap().checkpoint(), None);
                })));
            }
            Step::Advance(which) => {
                if runs.is_empty() {
                    continue;
                }
                let which = which.index(runs.len());
                if runs[which].advance(&setup).await {
                    drop(runs.remove(which));
                }
            }
            Step::Crash(which) => {
                if !runs.is_empty() {
                    drop(runs.remove(which.index(runs.len())));
                }
            }
        }
        let now = assert_right(&setup, &key, &past).await;
        assert!(now >= latest, "the snapshot was of event {latest} and is of {now}");
        latest = now;
    }
    for mut run in runs {
        while !run.advance(&setup).await {
            let now = assert_right(&setup, &key, &past).await;
            assert!(now >= latest, "the snapshot was of event {latest} and is of {now}");
            latest = now;
        }
    }

    // Loads that begin with the remaining snapshots return the correct state of every version.
    let text = |state: &Json| state.text().to_owned();
    let loaded = setup.loaded(&key).await;
    let (folded, state) = past.last().unwrap();
    assert_eq!((loaded.version(), text(&loaded.state)), (folded.version(), text(state)));
    assert_eq!(loaded.folded.message_seq(), folded.message_seq());
    for (folded, state) in &past[1..] {
        let at = LoadOptions { at: Some(folded.version()), ..LoadOptions::default() };
        let at = setup.store.load_with(setup.model(&key), &key, at).await.unwrap();
        assert_eq!((at.version(), text(&at.state)), (folded.version(), text(state)));
        assert_eq!(at.folded.message_seq(), folded.message_seq());
    }
}

fn run(aggregate_type: &str, first: Command, steps: Vec<Step>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(play(aggregate_type, first, steps));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn interleaved_runs_never_leave_a_wrong_or_older_snapshot_of_an_account(steps in vec(step(on_an_account()), 1..60)) {
        run("account", ("OpenAccount", json!({})), steps);
    }

    #[test]
    fn interleaved_runs_never_leave_a_wrong_or_older_snapshot_of_a_todo(steps in vec(step(on_a_todo()), 1..60)) {
        run("todo", ("CreateTodo", json!({"title": "a", "message": ""})), steps);
    }

    #[test]
    fn interleaved_runs_never_leave_a_wrong_or_older_snapshot_of_an_order(steps in vec(step(on_an_order()), 1..40)) {
        let items = json!([{"productId": "coffee", "quantity": 2}]);
        run("order", ("PlaceOrder", json!({"customerId": "alice", "items": items, "total": 4_500})), steps);
    }
}
