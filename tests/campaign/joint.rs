//! The schedules of decisions over several aggregates: processes that send commands to overlapping nodes, in all orders,
//! while calls and responses are lost and processes crash.
//!
//! Checked in each schedule:
//! - All parts of a decision are stored, or none; an acknowledged one is stored, a failed one is not. What each aggregate
//!   stores is complete as if it had been alone: [`check_table`].
//! - Transfers change no sum, and two guards never have more than one together, although the decision of each only looks at the
//!   other one. Two rivals never both have their marks, and there is never more than one twin, although each only looks whether
//!   the other one has its mark, or exists. All this is also true of what decisions have seen at once, at any time.
//! - A tag belongs to one node, whose state has it, also when nodes exchange tags; and beside a release that has no claims, when
//!   they have been rebuilt.
//! - A request with an idempotency key takes effect at most once, and each answer to it is the same.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use daybook_admin::{AdminCalls, Derived};
use daybook_decider::{Addressed, AggregateKey, Registry};
use daybook_event_store::{EventStore, StoreSettings};
use daybook_test_support::node::{Node, State, tag_claim};
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::checks::Rows;
use crate::clock::in_virtual_time;
use crate::database::TABLE;
use crate::dice::Dice;
use crate::joint_requests::{Client, JointRequests, addressed};
use crate::log::LogContents;
use crate::schedule::verify;
use crate::torn::TornTables;
use crate::writers::Work;

/// The nodes that transfer amounts among each other, and exchange tags.
const PURSES: [&str; 4] = ["b", "d", "f", "h"];

/// The total of each of them in the beginning.
const PURSE: i64 = 100;

/// The nodes of which each looks at the other one.
const GUARDS: [&str; 2] = ["c", "g"];

/// The nodes of which each takes its mark if the other one does not have its own: the mark is a tag.
const RIVALS: [(&str, &str); 2] = [("k", "p"), ("m", "q")];

/// The nodes of which each is made if the other one does not exist.
const TWINS: [&str; 2] = ["r", "s"];

/// The node that looks at all others, and at the marks.
const OBSERVER: &str = "e";

const TAGS: [&str; 3] = ["x", "y", "z"];

/// Runs the schedule of a seed and returns its log.
pub(crate) fn run(seed: u64, verbose: bool) -> LogContents {
    in_virtual_time(async {
        let mut dice = Dice::new(seed, "joint");
        let registry = Registry::new().with::<Node>().unwrap();
        let purses = PURSES.map(|id| (id, PURSE)).into_iter();
        let made = purses.chain(GUARDS.map(|id| (id, 0))).chain(RIVALS.map(|(id, _)| (id, 1))).chain([(OBSERVER, 0)]);
        let keys = made.clone().map(|(id, _)| id).chain(TWINS).map(node).collect();
        let work = Arc::new(Work::begin(seed, verbose, registry, keys));
        let earlier = dice.chance(0.2).then(|| Registry::new().with::<Node<false>>().unwrap());
        let is_rolling = earlier.is_some();
        let mut requests = JointRequests::new(&work, StoreSettings::new(TABLE)).beside(earlier);
        let store = requests.store(Arc::default());
        store.admin().create_table().await.unwrap();
        for (id, total) in made {
            requests.send(&store, &node(id), "Make", json!({"add": [total]})).await;
        }
        if dice.chance(0.5) {
            let tables = TornTables::new(seed, Arc::clone(&work.log), Box::new(|_| {}));
            work.database.tear(Arc::new(tables));
        }
        work.database.start_faults();
        let processes = dice.number(2..=4);
        let client = |number| Client::new(&requests, number, commands, &[0, 1, 10, 50]).run();
        join_all((0..processes).map(client)).await;
        work.database.stop_faults();
        // Calls that were sent still arrive.
        sleep(Duration::from_secs(60)).await;
        if is_rolling {
            rebuild_claims(&work, &requests, &store).await;
        }
        check(&work, &requests.check(), &store, is_rolling).await;
        work.log.contents()
    })
}

fn node(id: &str) -> AggregateKey {
    AggregateKey::new("node", id)
}

/// Corrects the claims, as an operator does when no process of the earlier release writes any more. A node with a tag that
/// another one has gives up its tags.
async fn rebuild_claims(work: &Work, requests: &JointRequests, store: &EventStore) {
    let (suspects, model) = (work.database.claims(), work.registry.get("node").unwrap());
    for key in &work.keys {
        let corrected = store.admin().correct(model, key, Derived::Claims(&suspects), true).await.unwrap();
        if !corrected.claims.elsewhere.is_empty() {
            work.log.count("tag of two nodes");
            requests.send(store, key, "Do", json!({"tags": []})).await;
        }
    }
}

/// The checks at the end. While a release was replaced that has no claims, no mark was safe.
async fn check(work: &Work, rows: &Rows, store: &EventStore, is_rolling: bool) {
    let (log, all) = (&work.log, rows.keys().cloned().collect::<Vec<_>>());
    let mut states = BTreeMap::new();
    for key in &all {
        let loaded = store.load(work.registry.get("node").unwrap(), key).await.unwrap();
        states.insert(key.id.clone(), loaded.state.read::<State>().unwrap());
    }
    let total = |id: &str| states[id].total;
    log.expect(PURSES.map(total).iter().sum::<i64>() == PURSE * PURSES.len() as i64, || {
        format!("a sum changed: {states:?}")
    });
    for pair in [GUARDS, TWINS] {
        log.expect(pair.map(total).iter().sum::<i64>() <= 1, || format!("write skew: {states:?}"));
    }
    let mut held = BTreeSet::new();
    for tag in TAGS.into_iter().chain(RIVALS.map(|(_, mark)| mark)) {
        let holder = store.claim(&tag_claim(tag)).await.unwrap().map(|row| row.holder().id);
        let by_states: Vec<_> = states.iter().filter(|(_, state)| state.tags.iter().any(|of| of == tag)).collect();
        let by_states: Vec<_> = by_states.into_iter().map(|(id, _)| id.clone()).collect();
        log.expect(holder.iter().eq(&by_states), || format!("{holder:?} has {tag}, by the states {by_states:?}"));
        held.extend(holder.map(|_| tag));
    }
    let is_skewed = RIVALS.iter().all(|(_, mark)| held.contains(mark));
    log.expect(is_rolling || !is_skewed, || format!("write skew of marks: {states:?}"));
    for row in &rows[&node(OBSERVER)] {
        let Some(data) = row["data"]["S"].as_str().filter(|_| row["eventType"]["S"] == "NodeAdded") else {
            continue;
        };
        let data: Value = serde_json::from_str(data).unwrap();
        let seen: Vec<_> = data["seen"].as_array().unwrap().iter().map(Value::as_i64).collect();
        if seen.is_empty() {
            continue;
        }
        let (purses, others) = seen.split_at(PURSES.len());
        let (guards, marks) = others.split_at(GUARDS.len());
        let sum = |of: &[Option<i64>]| of.iter().copied().sum::<Option<i64>>();
        let right = sum(purses) == Some(PURSE * PURSES.len() as i64) && sum(guards).is_some_and(|sum| sum <= 1);
        log.expect(right && marks.contains(&None), || format!("a decision saw {seen:?}"));
        log.count("all seen at once");
        if marks.iter().any(Option::is_some) {
            log.count("mark seen");
        }
    }
    verify(work, store, &all).await;
}

/// The commands of a request.
fn commands(work: &Work, dice: &mut Dice, number: usize) -> Vec<Addressed<'static>> {
    let mut purses = PURSES;
    dice.shuffle(&mut purses);
    let [from, to, by, _] = purses;
    let amount = dice.amount(1..=9);
    // Two events, so that a part of another node has several.
    let (takes, gives) = (json!({"add": [-amount]}), json!({"add": [amount - 1, 1]}));
    let sent = |id: &str, plan: &Value| json!([id, {"command": "Do", "data": plan}]);
    let mut guards = GUARDS;
    dice.shuffle(&mut guards);
    let (mut rivals, mut twins) = (RIVALS, TWINS);
    dice.shuffle(&mut rivals);
    dice.shuffle(&mut twins);
    match dice.number(0..=12) {
        // A transfer: named in the request, sent by one of the two, or by a third one.
        0 | 1 => vec![addressed(node(from), "Do", takes), addressed(node(to), "Do", gives)],
        2 => vec![addressed(node(from), "Do", json!({"add": [-amount], "send": [sent(to, &gives)]}))],
        3 => vec![addressed(node(by), "Do", json!({"send": [sent(from, &takes), sent(to, &gives)]}))],
        // A transfer that the second aggregate rejects; only it records that.
        4 => {
            let rejects = json!({"add": [amount], "most": -1_000_000, "records": dice.chance(0.7)});
            vec![addressed(node(from), "Do", takes), addressed(node(to), "Do", rejects)]
        }
        5 => vec![addressed(node(guards[0]), "Do", json!({"look": [guards[1]], "add": [1], "most": 1}))],
        6 if dice.chance(0.4) => vec![addressed(node(guards[0]), "Do", json!({"add": [-1]}))],
        6 => {
            let all: Vec<_> = PURSES.into_iter().chain(GUARDS).collect();
            vec![addressed(node(OBSERVER), "Do", json!({"look": all, "find": ["p", "q"], "add": [0]}))]
        }
        7 => vec![addressed(node(from), "Do", json!({"makes_new": true}))],
        8 => vec![addressed(node(from), "Do", json!({"tags": tags(dice, number)}))],
        9 | 10 => {
            let [(rival, own), (_, other)] = rivals;
            let frees = dice.chance(0.4);
            let plan = if frees { json!({"tags": []}) } else { json!({"find": [other], "most": 1, "tags": [own]}) };
            vec![addressed(node(rival), "Do", plan)]
        }
        11 => vec![addressed(node(twins[0]), "Make", json!({"look": [twins[1]], "add": [1], "most": 1}))],
        _ => {
            // Two that change their tags together, which may be an exchange.
            let (first, second) = (tags(dice, number), tags(dice, number + 1));
            work.log.count("tags exchanged");
            vec![
                addressed(node(from), "Do", json!({"tags": first})),
                addressed(node(to), "Do", json!({"tags": second})),
            ]
        }
    }
}

/// Some tags; those of two parts have nothing in common.
fn tags(dice: &mut Dice, part: usize) -> Vec<&'static str> {
    let tags = TAGS.into_iter().enumerate().filter(|(index, _)| (index + part).is_multiple_of(2));
    let tags: Vec<_> = tags.map(|(_, tag)| tag).collect();
    tags.into_iter().filter(|_| dice.chance(0.7)).collect()
}
