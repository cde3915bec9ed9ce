//! The rows of deadlines: written by the difference of each append, found by time, and marked.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::types::AttributeValue;
use daybook_decider::record::timestamp;
use daybook_decider::{
    Addressed, CommandRequest, DecisionInput, Decisions, Folded, Involved, Json, Meta, Model, Registry, joint,
};
use daybook_event_store::cache::Cache;
use daybook_event_store::{
    CommandResponse, DeadlineMark, Decide, EventStore, LoadPolicy, ResponseDetail, StoreSettings, StoredDeadline,
    TransactError, TransactOptions, Transacted, Undecided,
};
use daybook_table::{AggregateKey, DeadlineItem, DeadlineState, keys};
use daybook_test_support::clock::{next_input, now};
use daybook_test_support::commands::deadline;
use daybook_test_support::fault_proxy::InjectedFault;
use daybook_test_support::row::{Item, sealed, text};
use daybook_test_support::table::{TestTable, settings};
use daybook_test_support::timer::Timer;
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::group::{APPEND, Request, operations, send_behind, version};
use crate::support::Subject;

const ONE: &str = "2031-01-01T10:00:00.000Z";
const TWO: &str = "2031-01-01T11:00:00.500Z";

fn timer(id: &str) -> Subject {
    Subject::of::<Timer>(id)
}

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

async fn set(store: &EventStore, timer: &Subject, at: Value) {
    let command = if timer.load(store).await.version() == 0 { "Start" } else { "Set" };
    timer.command(store, command, json!({ "at": at })).await;
}

/// The time of each row, by name. Each row has a checksum that matches.
async fn rows(table: &TestTable, timer: &Subject) -> BTreeMap<String, String> {
    let rows = table.rows(&timer.key, keys::DEADLINE_PREFIX).await;
    assert!(rows.iter().all(|row| sealed(row.clone()) == *row), "{rows:?}");
    rows.iter().map(|row| (keys::deadline_name(text(row, "sk")).to_owned(), text(row, "due").to_owned())).collect()
}

fn expected(rows: &[(&str, &str)]) -> BTreeMap<String, String> {
    rows.iter().map(|(name, due)| ((*name).to_owned(), (*due).to_owned())).collect()
}

#[tokio::test]
async fn append_sets_moves_and_drops_deadlines() {
    let table = TestTable::new().await;
    let (store, timer) = (table.store(), timer("1"));
    set(&store, &timer, json!({"a": ONE, "b": ONE})).await;
    assert_eq!(rows(&table, &timer).await, expected(&[("a", ONE), ("b", ONE)]));
    set(&store, &timer, json!({"b": TWO, "c": ONE})).await;
    assert_eq!(rows(&table, &timer).await, expected(&[("b", TWO), ("c", ONE)]));

    let row = table.row(&timer.key, "DEADLINE#b").await.unwrap();
    let event = table.row(&timer.key, &keys::event_sk(2)).await.unwrap();
    let stored = store.deadline(&timer.key, "b").await.unwrap().unwrap();
    assert_eq!((stored.due, stored.item.seq_num, &*stored.item.event_id), (time(TWO), 2, text(&event, "eventId")));
    assert_eq!((text(&row, "gsi1pk"), text(&row, "gsi1sk")), ("DEADLINE", TWO));
    assert_eq!((stored.item.state(), &stored.aggregate, row.len()), (DeadlineState::Pending, &timer.key, 8));

    timer.command(&store, "Stop", json!({})).await;
    assert_eq!(rows(&table, &timer).await, expected(&[]));
    assert_eq!(store.deadline(&timer.key, "b").await.unwrap(), None);
}

#[tokio::test]
async fn row_has_the_correlation_of_its_event_and_shows_that_it_is_due_soon() {
    let table = TestTable::new().await;
    let (store, timer) = (table.store(), timer("1"));
    let meta = Meta { correlation_id: Some("c-1".to_owned()), ..Meta::default() };
    let input = DecisionInput { meta, ..next_input() };
    let (limit, millisecond) = (input.now + DeadlineItem::SOON, SignedDuration::from_millis(1));
    let at = json!({"past": "1970-01-01T00:00:00Z", "soon": limit - millisecond, "late": limit});
    timer.command_under(&input, &store, "Start", json!({ "at": at })).await;
    for (name, soon) in [("past", Some(true)), ("soon", Some(true)), ("late", None)] {
        let item = store.deadline(&timer.key, name).await.unwrap().unwrap().item;
        assert_eq!((item.soon, item.correlation_id.as_deref()), (soon, Some("c-1")), "{name}");
    }
}

#[tokio::test]
async fn deadline_costs_two_units_and_one_of_the_index_when_it_changes() {
    let table = TestTable::new().await;
    let store = table.store();
    let units = async |timer: &Subject, command: &str, at: Value| {
        table.proxy.take_calls();
        timer.command(&store, command, json!({ "at": at })).await;
        let append = table.proxy.take_calls().pop().unwrap();
        (append.table_units, append.index_units)
    };
    let (with, without) = (timer("1"), Subject::of::<Timer<false>>("2"));
    let costs = [
        (units(&without, "Start", json!({"a": ONE})).await, units(&with, "Start", json!({"a": ONE})).await, (2.0, 1.0)),
        (units(&without, "Set", json!({"a": ONE})).await, units(&with, "Set", json!({"a": ONE})).await, (0.0, 0.0)),
        // The row of the index is deleted and put.
        (units(&without, "Set", json!({"a": TWO})).await, units(&with, "Set", json!({"a": TWO})).await, (2.0, 2.0)),
        (units(&without, "Set", json!({})).await, units(&with, "Set", json!({})).await, (2.0, 1.0)),
    ];
    for (without, with, more) in costs {
        assert_eq!((with.0 - without.0, with.1 - without.1), more, "{costs:?}");
    }
    let bytes =
        async |timer: &Subject| table.rows(&timer.key, keys::EVENT_PREFIX).await.iter().map(Item::len).sum::<usize>();
    assert_eq!(bytes(&with).await, bytes(&without).await);
}

#[tokio::test]
async fn group_writes_the_last_change_of_each_deadline() {
    let table = TestTable::new().await;
    let (store, timer) = (table.store(), timer("1"));
    set(&store, &timer, json!({"a": ONE})).await;
    let request = |at: Value| Request::new(&timer, "Set", json!({ "at": at }));
    let requests = [json!({"a": TWO, "b": ONE}), json!({"c": ONE}), json!({"a": TWO, "c": TWO})].map(request);
    let (sent, calls) = send_behind(&table, &store, &request(json!({"a": ONE})), &requests, &[]).await;
    assert_eq!(sent.iter().map(version).collect::<Vec<_>>(), [3, 4, 5]);
    assert_eq!(operations(&calls), [APPEND]);
    assert_eq!(rows(&table, &timer).await, expected(&[("a", TWO), ("c", TWO)]));
    let stored = store.deadline(&timer.key, "a").await.unwrap().unwrap();
    assert_eq!(stored.item.seq_num, 5);

    // The group is lost, and decided again.
    let requests = [json!({"b": ONE}), json!({"b": TWO})].map(request);
    let (sent, _) = send_behind(&table, &store, &request(json!({})), &requests, &[InjectedFault::BreakAfter]).await;
    assert_eq!(sent.iter().map(version).collect::<Vec<_>>(), [7, 8]);
    assert_eq!(rows(&table, &timer).await, expected(&[("b", TWO)]));
}

#[tokio::test]
async fn append_with_an_unknown_outcome_writes_its_deadlines_once_or_never() {
    let table = TestTable::new().await;
    let (store, timer) = (table.store(), timer("1"));
    set(&store, &timer, json!({"a": ONE})).await;
    for (fault, at) in [(InjectedFault::BreakBefore, "b"), (InjectedFault::BreakAfter, "c")] {
        table.proxy.fail_next(APPEND, fault);
        set(&store, &timer, json!({ (at): TWO })).await;
        assert_eq!(rows(&table, &timer).await, expected(&[(at, TWO)]));
    }
    // Another process decides on what is stored.
    set(&table.store(), &timer, json!({"c": TWO, "d": ONE})).await;
    assert_eq!(rows(&table, &timer).await, expected(&[("c", TWO), ("d", ONE)]));
}

/// A request over two timers, which may require a row.
struct Both(Registry, AggregateKey, CommandRequest, Option<StoredDeadline>);

impl Decide for Both {
    type Error = String;

    fn decide(&self, before: &Folded, involved: &Involved) -> Result<Decisions, Undecided<String>> {
        let input = DecisionInput { involved: involved.clone(), ..next_input() };
        let decided = joint::decide(&self.0, before, &[Addressed::new(&self.1, std::slice::from_ref(&self.2))], &input);
        decided.map_err(|error| match error.error {
            daybook_decider::CommandError::Needs(needs) => Undecided::Needs(needs),
            error => Undecided::Error(error.to_string()),
        })
    }

    fn model(&self, aggregate_type: &str) -> Option<&dyn Model> {
        self.0.get(aggregate_type)
    }

    fn respond(&self, _: &Folded, decisions: &Decisions, _: ResponseDetail) -> Result<CommandResponse, String> {
        let version = decisions.own.after.version();
        Ok(CommandResponse { status: 200, version, state_version: 1, body: String::new() })
    }

    fn requires(&self) -> Option<&StoredDeadline> {
        self.3.as_ref()
    }
}

async fn send_both(store: &EventStore, both: &Both) -> Result<Transacted, TransactError<String>> {
    let (policy, deadline) = (LoadPolicy::Incremental, deadline());
    let options = TransactOptions { policy, creates: false, expected_version: None, idempotency: None, deadline };
    store.transact(timer(&both.1.id).model(), &both.1, both, &options).await
}

#[tokio::test]
async fn joint_append_sets_the_deadlines_of_all_its_aggregates() {
    let table = TestTable::new().await;
    let (store, timers) = (table.store(), ["1", "2"].map(timer));
    for timer in &timers {
        set(&store, timer, json!({"a": ONE})).await;
    }
    let data = Json::of(&json!({"other": "2", "at": {"a": TWO, "b": ONE}})).unwrap();
    let command = CommandRequest { command: "SetBoth".to_owned(), data };
    let both = Both(Registry::new().with::<Timer>().unwrap(), timers[0].key.clone(), command, None);
    table.proxy.take_calls();
    send_both(&store, &both).await.unwrap();
    assert_eq!(table.operations(), [APPEND]);
    for timer in &timers {
        assert_eq!(rows(&table, timer).await, expected(&[("a", TWO), ("b", ONE)]));
        assert_eq!(store.deadline(&timer.key, "b").await.unwrap().unwrap().item.seq_num, 2);
    }
}

#[tokio::test]
async fn append_fails_if_the_row_that_it_requires_has_changed() {
    let table = TestTable::new().await;
    let (store, timers) = (table.store(), ["1", "2", "3"].map(timer));
    for timer in &timers {
        set(&store, timer, json!({"a": ONE})).await;
    }
    let both = async |times: Value, of: &Subject| {
        let data = Json::of(&json!({"other": "2", "at": times})).unwrap();
        let command = CommandRequest { command: "SetBoth".to_owned(), data };
        let required = store.deadline(&of.key, "a").await.unwrap();
        Both(Registry::new().with::<Timer>().unwrap(), timers[0].key.clone(), command, required)
    };
    send_both(&store, &both(json!({"a": TWO}), &timers[2]).await).await.unwrap();
    // It changes the row itself.
    send_both(&store, &both(json!({"a": ONE}), &timers[1]).await).await.unwrap();

    let moved = both(json!({"a": TWO}), &timers[2]).await;
    set(&store, &timers[2], json!({"a": TWO})).await;
    let marked = both(json!({"a": TWO}), &timers[2]).await;
    assert!(store.mark_deadline(marked.3.as_ref().unwrap(), DeadlineMark::Fired).await.unwrap());
    for required in [moved, marked] {
        let sent = send_both(&store, &required).await;
        assert!(matches!(&sent, Err(TransactError::RowChanged)), "{sent:?}");
    }
    assert_eq!((timers[0].load(&store).await.version(), timers[1].load(&store).await.version()), (3, 3));

    // The response is lost, and then the row changes: the event shows that it was appended.
    set(&store, &timers[2], json!({"a": ONE})).await;
    let lost = both(json!({"a": TWO}), &timers[2]).await;
    table.proxy.fail_next(APPEND, InjectedFault::BreakAfter);
    table.proxy.take_calls();
    let mut run = Box::pin(send_both(&store, &lost));
    table.proxy.hold(&mut run, |calls| calls.iter().any(|call| call.operation == APPEND)).await;
    set(&table.direct_store(), &timers[2], json!({"a": TWO})).await;
    run.await.unwrap();
    assert_eq!(timers[0].load(&store).await.version(), 4);
}

/// The names of the deadlines that are found, and whether there are more.
async fn found(store: &EventStore, state: DeadlineState, until: &str, limit: usize) -> (Vec<String>, bool) {
    let found = store.deadlines(state, time(until), limit).await.unwrap();
    assert_eq!(found.unreadable, []);
    let name = |of: &StoredDeadline| format!("{}/{}", of.aggregate.id, of.item.name());
    (found.items.iter().map(name).collect(), found.more)
}

#[tokio::test]
async fn deadlines_of_all_shards_are_found_in_the_order_of_their_times() {
    let table = TestTable::new().await;
    let shards = |event_type_shards| table.store_with(StoreSettings { event_type_shards, ..settings() });
    let (one, four) = (shards(1), shards(4));
    let due = |number: usize| timestamp(time(ONE) + SignedDuration::from_secs(i64::try_from(number).unwrap()));
    // Those from before sharding was turned on are in a partition of their own.
    for number in 0..20 {
        let store = if number % 2 == 0 { &one } else { &four };
        set(store, &timer(&number.to_string()), json!({ "a": due(number) })).await;
    }
    let pending = DeadlineState::Pending;
    let names = |numbers: std::ops::Range<usize>| numbers.map(|number| format!("{number}/a")).collect::<Vec<_>>();
    assert_eq!(found(&four, pending, &due(99), 100).await, (names(0..20), false));
    assert_eq!(found(&four, pending, &due(9), 100).await, (names(0..10), false));
    assert_eq!(found(&four, pending, ONE, 100).await, (names(0..1), false));
    assert_eq!(found(&four, pending, "2030-01-01T00:00:00Z", 100).await, (vec![], false));
    for limit in 1..20 {
        let (first, more) = found(&four, pending, &due(99), limit).await;
        assert!(more && !first.is_empty() && first.len() <= limit, "{limit}: {first:?}");
        assert_eq!(first, names(0..first.len()));
    }
    table.proxy.take_calls();
    found(&one, pending, "2030-01-01T00:00:00Z", 10_000).await;
    assert_eq!(table.operations(), ["Query"]);
}

/// Otherwise, the deadlines of a moment would take many ticks after more shards were set.
#[tokio::test]
async fn deadlines_from_before_sharding_fill_a_page() {
    let table = TestTable::new().await;
    let store = |event_type_shards| table.store_with(StoreSettings { event_type_shards, ..settings() });
    let (before, after) = (store(1), store(64));
    for number in 0..30 {
        set(&before, &timer(&number.to_string()), json!({"a": ONE})).await;
    }
    let (first, more) = found(&after, DeadlineState::Pending, ONE, 20).await;
    assert_eq!((first.len(), more), (20, true));
}

#[tokio::test]
async fn marked_deadlines_are_found_by_their_state_until_they_are_set_again() {
    let table = TestTable::new().await;
    let (store, timer) = (table.store(), timer("1"));
    let (pending, failed) = (DeadlineState::Pending, DeadlineState::Failed);
    set(&store, &timer, json!({"a": "1970-01-01T00:00:00Z", "b": ONE})).await;
    table.tamper(&timer.key, "DEADLINE#a", [("later", AttributeValue::N("1".to_owned()))]).await;
    let read = async |name: &str| store.deadline(&timer.key, name).await.unwrap().unwrap();
    let (a, b) = (read("a").await, read("b").await);
    assert_eq!(a.item.soon, Some(true));
    assert!(store.mark_deadline(&a, DeadlineMark::Fired).await.unwrap());
    assert!(store.mark_deadline(&b, DeadlineMark::Failed(&"é".repeat(1_000))).await.unwrap());
    assert_eq!(found(&store, pending, TWO, 10).await, (vec![], false));
    assert_eq!(found(&store, failed, TWO, 10).await, (vec!["1/b".to_owned()], false));
    let (fired, broken) = (read("a").await.item, read("b").await.item);
    assert_eq!((fired.state(), fired.soon), (DeadlineState::Fired, None));
    assert!(broken.error.unwrap().len() <= DeadlineItem::MAX_ERROR && broken.failed_at.is_some());
    // An attribute of another release is still there.
    assert!(table.row(&timer.key, "DEADLINE#a").await.unwrap().contains_key("later"));

    // What was read before is outdated.
    for mark in [DeadlineMark::Fired, DeadlineMark::Pending] {
        assert!(!store.mark_deadline(&b, mark).await.unwrap());
    }
    assert!(store.mark_deadline(&read("b").await, DeadlineMark::Pending).await.unwrap());
    assert_eq!(found(&store, pending, TWO, 10).await, (vec!["1/b".to_owned()], false));
    let again = read("b").await;
    assert_eq!(DeadlineItem { soon: None, ..again.item.clone() }, DeadlineItem { soon: None, ..b.item.clone() });

    // An append that leaves it alone leaves the mark, one with another time sets it again.
    store.mark_deadline(&read("b").await, DeadlineMark::Fired).await.unwrap();
    set(&store, &timer, json!({"b": ONE})).await;
    assert_eq!(read("b").await.item.state(), DeadlineState::Fired);
    set(&store, &timer, json!({"b": TWO})).await;
    assert_eq!((read("b").await.item.state(), rows(&table, &timer).await), (pending, expected(&[("b", TWO)])));
    timer.command(&store, "Stop", json!({})).await;
    assert!(!store.mark_deadline(&again, DeadlineMark::Fired).await.unwrap());
    assert_eq!(rows(&table, &timer).await, expected(&[]));
}

#[tokio::test]
async fn unreadable_row_hides_no_other() {
    let table = TestTable::new().await;
    let (store, timer) = (table.store(), timer("1"));
    set(&store, &timer, json!({"a": ONE, "b": ONE})).await;
    table.tamper(&timer.key, "DEADLINE#a", [("due", AttributeValue::S("soon".to_owned()))]).await;
    for found in [
        store.deadlines(DeadlineState::Pending, time(ONE), 10).await.unwrap(),
        store.deadlines_of(&timer.key).await.unwrap(),
    ] {
        let reason = &found.unreadable[0].reason;
        assert!(found.unreadable.len() == 1 && reason.starts_with("its time \"soon\""), "{reason}");
        assert_eq!(found.items.len(), 1);
    }
    let error = store.deadline(&timer.key, "a").await.unwrap_err().to_string();
    assert!(error.contains("the deadline a of timer/1"), "{error}");
}

#[derive(Clone, Debug)]
enum Step {
    /// One store sets these times: for each name, an hour or none.
    Set {
        store: usize,
        at: [Option<u8>; 3],
    },
    /// Both stores set times at once.
    Race {
        at: [[Option<u8>; 3]; 2],
    },
    /// One store deletes the timer, and the next step begins another one.
    Stop {
        store: usize,
    },
    /// A row is marked as fired.
    Fire {
        name: usize,
    },
    /// The response of the next append is lost, or the call.
    Break {
        after: bool,
    },
    Snapshot,
}

const NAMES: [&str; 3] = ["a", "b", "c"];

fn step() -> impl Strategy<Value = Step> {
    let at = || [(); 3].map(|()| proptest::option::weighted(0.7, 0..3_u8));
    prop_oneof![
        6 => (0..2_usize, at()).prop_map(|(store, at)| Step::Set { store, at }),
        2 => (at(), at()).prop_map(|(one, other)| Step::Race { at: [one, other] }),
        1 => (0..2_usize).prop_map(|store| Step::Stop { store }),
        2 => (0..3_usize).prop_map(|name| Step::Fire { name }),
        1 => any::<bool>().prop_map(|after| Step::Break { after }),
        1 => Just(Step::Snapshot),
    ]
}

async fn run(steps: Vec<Step>) {
    let table = TestTable::new().await;
    let settings = StoreSettings { snapshot_every: 3, ..settings() };
    let stores = [(); 2].map(|()| table.store_with(settings.clone()).with_cache(Cache::bounded(1, 2_000)));
    let times = |at: &[Option<u8>; 3]| {
        let hours = NAMES.iter().zip(at).filter_map(|(name, hour)| Some((*name, (*hour)?)));
        hours.map(|(name, hour)| (name.to_owned(), json!(format!("2031-01-01T0{hour}:00:00Z")))).collect::<Value>()
    };
    let mut timers = vec![timer("0")];
    for step in steps {
        let current = timers.last().unwrap();
        let is_new = current.load(&table.direct_store()).await.version() == 0;
        match step {
            Step::Set { store, at } => set(&stores[store], current, times(&at)).await,
            Step::Race { at } if !is_new => {
                let of = |store: usize| set(&stores[store], current, times(&at[store]));
                tokio::join!(of(0), of(1));
            }
            Step::Stop { store } if !is_new => {
                current.command(&stores[store], "Stop", json!({})).await;
                timers.push(timer(&timers.len().to_string()));
            }
            Step::Fire { name } => {
                if let Some(stored) = stores[0].deadline(&current.key, NAMES[name]).await.unwrap() {
                    assert!(stores[0].mark_deadline(&stored, DeadlineMark::Fired).await.unwrap());
                }
            }
            Step::Break { after } => {
                let fault = if after { InjectedFault::BreakAfter } else { InjectedFault::BreakBefore };
                table.proxy.fail_next(APPEND, fault);
            }
            Step::Snapshot if !is_new => {
                stores[0].take_snapshot(current.model(), &current.key, now()).await.unwrap();
            }
            Step::Race { .. } | Step::Stop { .. } | Step::Snapshot => {}
        }
        for timer in &timers {
            let folded = timer.rebuild(&table.direct_store()).await.folded;
            let declared = timer.model().deadlines(&folded).unwrap().into_iter();
            let declared: BTreeMap<_, _> = declared.map(|of| (of.name, timestamp(of.due.unwrap()))).collect();
            assert_eq!(rows(&table, timer).await, declared);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn rows_are_the_deadlines_of_the_state_whatever_two_writers_do(steps in proptest::collection::vec(step(), 1..14)) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(run(steps));
    }
}
