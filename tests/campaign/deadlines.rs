//! The schedules of deadlines: clients that set, move and drop the deadlines of timers, the stream, the relay, the tick, and
//! several instances of the reactor with wrong clocks, all at once, while every part fails.
//!
//! Checked in each schedule, besides the guarantees of [`reactions`](crate::reactions):
//! - A deadline fires only while the state declares it, once for each time that it is set, and not before its time.
//! - In the end, each deadline that is declared, and whose time has come, has fired or was rejected, and is marked as fired.
//! - The rows of deadlines are those of the states, and no request beside firings is lost or takes effect twice:
//!   [`joint_requests`](crate::joint_requests).

mod timer;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use daybook_admin::AdminCalls;
use daybook_decider::{Addressed, Aggregate, AggregateKey, Registry};
use daybook_event_store::StoreSettings;
use daybook_table::{DueDeadline, DueDeadlines, keys};
use futures_util::future::join_all;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::checks::Rows;
use crate::clock::in_virtual_time;
use crate::database::TABLE;
use crate::dice::Dice;
use crate::hint_queue::Hints;
use crate::joint_requests::{Client, JointRequests, addressed};
use crate::log::{Log, LogContents};
use crate::reactions::{FAR, Reactions, is_pending};
use crate::schedule::verify;
use crate::writers::Work;

use self::timer::{Event, NAMES, State, TIMERS, Timer};

/// Runs the schedule of a seed and returns its log.
pub(crate) fn run(seed: u64, verbose: bool) -> LogContents {
    in_virtual_time(async {
        let mut dice = Dice::new(seed, "deadlines");
        let keys = TIMERS.map(|id| AggregateKey::new("timer", id)).to_vec();
        let work = Arc::new(Work::begin(seed, verbose, registry(false), keys));
        let settings = StoreSettings { event_type_shards: dice.one_of(&[1, 3]), ..StoreSettings::new(TABLE) };
        let mut requests = JointRequests::new(&work, settings.clone());
        let store = requests.store(Arc::default());
        store.admin().create_table().await.unwrap();
        join_all(work.keys.iter().map(|key| requests.send(&store, key, "Start", json!({})))).await;
        let reactions = Reactions::start(&work, settings, Hints::Deadlines, registry, &mut dice);
        let clients = dice.number(1..=2);
        let client = |number| Client::new(&requests, number, commands, &[0, 10, 1_000, 5_000, 30_000]).run();
        reactions.run(async { drop(join_all((0..clients).map(client)).await) }, hint, &mut dice).await;
        check(&work, &requests.check(), &reactions.dropped.borrow());
        verify(&work, &store, &work.keys).await;
        work.log.contents()
    })
}

fn registry(is_repaired: bool) -> Registry {
    let registry = Registry::new();
    if is_repaired { registry.with::<Timer<true>>() } else { registry.with::<Timer<false>>() }.unwrap()
}

/// The commands of a request.
fn commands(work: &Work, dice: &mut Dice, _: usize) -> Vec<Addressed<'static>> {
    let mut timers = work.keys.clone();
    dice.shuffle(&mut timers);
    let (first, second) = (json!(times(work, dice)), json!(times(work, dice)));
    match dice.number(0..=9) {
        0 if dice.chance(0.2) => vec![addressed(work.keys[TIMERS.len() - 1].clone(), "Stop", json!({}))],
        1 => vec![
            addressed(timers[0].clone(), "Set", json!({"at": first})),
            addressed(timers[1].clone(), "Set", json!({"at": second})),
        ],
        2 => vec![addressed(timers[0].clone(), "Set", json!({"at": first, "other": [timers[1].id, second]}))],
        _ => vec![addressed(timers[0].clone(), "Set", json!({"at": first}))],
    }
}

/// Times of a few deadlines; those without one are dropped.
fn times(work: &Work, dice: &mut Dice) -> BTreeMap<&'static str, Option<Timestamp>> {
    (0..dice.size(1..=2))
        .map(|_| {
            let name = dice.one_of(&NAMES);
            let due = match dice.number(0..=9) {
                0 | 1 => None,
                2 | 3 => Some(work.clock.timestamp() + SignedDuration::from_millis(dice.amount(0..=3_000))),
                4 => Some(work.clock.timestamp() + SignedDuration::from_secs(dice.amount(60..=300))),
                5 => Some(work.clock.timestamp() + FAR),
                _ => Some(round_time(work, dice)),
            };
            (name, due)
        })
        .collect()
}

/// A time from a few seconds ago to a minute from now. There are so few that a deadline is set to the same one again.
fn round_time(work: &Work, dice: &mut Dice) -> Timestamp {
    let tens = work.clock.timestamp().as_second() / 10 + dice.amount(-1..=6);
    Timestamp::from_second(tens * 10).unwrap()
}

/// A message about a deadline that may not exist, or not at this time.
fn hint(work: &Work, dice: &mut Dice) -> String {
    let (key, name) = (dice.one_of(&work.keys), dice.one_of(&NAMES).to_owned());
    DueDeadlines::new(&[DueDeadline { due: round_time(work, dice), key, name }]).to_body()
}

/// The index partition of the row of a deadline; `None` if it has fired.
fn partition<'a>(rows: &'a [Value], name: &str) -> Option<&'a str> {
    rows.iter().find(|row| row["sk"]["S"] == keys::deadline_sk(name))?["gsi1pk"]["S"].as_str()
}

/// Checks all firings, and the rows of the deadlines that are declared.
fn check(work: &Work, rows: &Rows, dropped: &BTreeSet<(AggregateKey, String, Timestamp)>) {
    let log = &work.log;
    for (key, rows) in rows {
        let (state, fired) = replay(log, key, rows);
        for (name, due) in &state.at {
            let (partition, has_fired) = (partition(rows, name), fired.contains(&(name.clone(), *due)));
            let has_no_event = ["refuse", "idle"].contains(&&**name);
            let is_dropped = dropped.contains(&(key.clone(), name.clone(), *due));
            let right = if *due > work.clock.timestamp() {
                partition.is_some_and(is_pending) && !has_fired
            } else {
                partition.is_none() && (has_fired != has_no_event || is_dropped)
            };
            log.expect(right, || format!("{key} {name} {due}: {partition:?}, has fired: {has_fired}"));
            log.count(&format!("deadline {name} at the end"));
        }
    }
}

/// The state after the events of a timer, and the names and times of the deadlines that have fired.
fn replay(log: &Log, key: &AggregateKey, rows: &[Value]) -> (State, BTreeSet<(String, Timestamp)>) {
    let (mut state, mut fired) = (State::default(), BTreeSet::new());
    for row in rows.iter().filter(|row| row["sk"]["S"].as_str().unwrap().starts_with("EVENT#")) {
        let data: Value = serde_json::from_str(row["data"]["S"].as_str().unwrap()).unwrap();
        let event = serde_json::from_value(json!({"type": row["eventType"]["S"], "data": data})).unwrap();
        if let Event::TimerRang { name, due, .. } | Event::TimerRefused { name, due } = &event {
            let at: Timestamp = row["occurredAt"]["S"].as_str().unwrap().parse().unwrap();
            let is_first = fired.insert((name.clone(), *due));
            log.expect(is_first, || format!("{key} {name} {due} has fired twice"));
            log.expect(state.at.get(name) == Some(due), || format!("{key} {name} {due} fires: {state:?}"));
            log.expect(at >= *due, || format!("{key} {name} {due} has fired at {at}"));
            log.count(&format!("deadline {name} fired"));
        }
        let before = state.at.clone();
        state = Timer::<false>::evolve(state, &event);
        // One that is set again fires again.
        fired.retain(|(name, due)| before.get(name) == Some(due) || state.at.get(name) != Some(due));
    }
    (state, fired)
}
