//! One schedule: the run of one seed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use daybook_admin::AdminCalls;
use daybook_decider::Claim;
use daybook_event_store::{EventStore, StoreSettings};
use daybook_table::{AggregateKey, keys};
use futures_util::future::OptionFuture;
use tokio::task::spawn_local;
use tokio::time::sleep;

use crate::bell::registry;
use crate::checks::{check_responses, check_table};
use crate::clock::in_virtual_time;
use crate::database::{Database, TABLE};
use crate::delivery::deliver;
use crate::dice::Dice;
use crate::early_republish::EarlyRepublish;
use crate::expiry::check_expiry;
use crate::log::LogContents;
use crate::requests::Written;
use crate::snapshots::SnapshotFunction;
use crate::writers::{EMAILS, PERSONAL, Work};

/// Runs the schedule of a seed and returns its log.
pub(crate) fn run(seed: u64, verbose: bool) -> LogContents {
    in_virtual_time(async {
        let mut dice = Dice::new(seed, "schedule");
        let work = Arc::new(work(seed, verbose, &mut dice));
        write_and_deliver(&work, &mut dice).await;
        work.log.contents()
    })
}

/// Runs the writers, and then everything that reads what they have written.
pub(crate) async fn write_and_deliver(work: &Arc<Work>, dice: &mut Dice) {
    let snapshotter = dice.chance(0.25).then(|| SnapshotFunction::new(Arc::clone(work)));
    let written = write(work, dice, snapshotter.as_ref()).await;
    let messages = deliver(work, dice, &written.attempts, snapshotter.as_ref()).await;
    let expires = dice.chance(0.08);
    if expires {
        check_expiry(work, dice, &messages).await;
    }
    if expires || snapshotter.is_some() {
        verify(work, &store(&work.database), &work.keys).await;
    }
    if let Some(snapshotter) = snapshotter {
        snapshotter.check().await;
    }
}

/// The aggregates of a schedule.
fn work(seed: u64, verbose: bool, dice: &mut Dice) -> Work {
    // Large: the messages of a few aggregates exceed the size of a request. Many: they exceed its number of entries.
    // Claims: customers take the same few addresses.
    let (large, many, claims) = (dice.chance(0.028), dice.chance(0.03), dice.chance(0.15));
    let types: &[&str] = match (large, many, claims) {
        (true, ..) => &["bell"; 6],
        (false, true, _) => &["todo"; 24],
        (false, false, true) => &["customer", "customer", "customer", "order"],
        (false, false, false) => &["account", "todo", "order", "bell", "bell", "order"],
    };
    let mut keys: Vec<_> = types.iter().zip(0..).map(|(&of, id)| AggregateKey::new(of, format!("{id}"))).collect();
    dice.shuffle(&mut keys);
    keys.truncate(if large || many { keys.len() } else { dice.size(1..=4) });
    let work = Work::begin(seed, verbose, registry(), keys);
    Work { volume: if large { 300_000 } else { work.volume }, ..work }
}

/// The part of the writers: runs them, with the snapshotter and an operator beside them, and checks the table.
async fn write(work: &Arc<Work>, dice: &mut Dice, snapshotter: Option<&SnapshotFunction>) -> Written {
    let Work { database, keys, log, .. } = &**work;
    let store = store(database);
    store.admin().create_table().await.unwrap();
    database.start_faults();
    let (writers, requests) = match (work.is_large(), work.is_many(), dice.chance(0.03)) {
        (true, ..) => (2, 8),
        (false, true, _) => (3, 12),
        (false, false, true) => (dice.number(1..=3), dice.size(20..=40)),
        (false, false, false) => (dice.number(1..=3), dice.size(2..=9)),
    };
    let republishes = !work.is_large() && !work.is_many() && dice.chance(0.08);
    let republish: OptionFuture<_> = republishes.then(|| spawn_local(EarlyRepublish::run(Arc::clone(work)))).into();
    let early_snapshots: OptionFuture<_> = snapshotter.map(|function| function.clone().run_early()).into();
    let written = tokio::select! {
        written = work.run(writers, requests) => written,
        Some(()) = early_snapshots => unreachable!("it never ends"),
    };
    let republish = republish.await.transpose().unwrap();
    database.stop_faults();
    // Calls that were sent still arrive.
    sleep(Duration::from_secs(60)).await;
    let rows = keys.iter().map(|key| (key.clone(), database.rows(&keys::pk(key)))).collect();
    check_table(&rows, &written.attempts, log);
    check_responses(&rows, &written, log);
    check_claims(work).await;
    if let Some(republish) = republish {
        republish.check(work);
    }
    verify(work, &store, &work.keys).await;
    written
}

/// Verifies aggregates, and all claims, as an operator does. Each finding is a violation.
pub(crate) async fn verify(work: &Work, store: &EventStore, keys: &[AggregateKey]) {
    let log = &work.log;
    for key in keys {
        let model = work.registry.get(&key.aggregate_type).unwrap();
        let verified = store.admin().verify(model, key, work.clock.timestamp()).await.unwrap();
        log.expect(verified.findings.is_empty(), || format!("{key}: {:?}", verified.findings));
    }
    for claim in work.database.claims() {
        let verified = store.admin().verify_claim(&work.registry, &claim).await.unwrap();
        log.expect(verified.findings.is_empty(), || format!("{claim}: {:?}", verified.findings));
    }
}

/// Checks that the customer of each claim has it in its state, and that each customer has the claims of its state.
pub(crate) async fn check_claims(work: &Work) {
    let store = store(&work.database);
    let mut claimed = BTreeMap::new();
    for key in work.keys.iter().filter(|key| key.aggregate_type == "customer") {
        let model = work.registry.get("customer").unwrap();
        let loaded = store.load(model, key).await.unwrap();
        if model.is_forgotten(&loaded.folded).unwrap() {
            work.log.count("customer forgotten");
            let state = loaded.state.text();
            work.log.expect(!state.contains(PERSONAL), || format!("{key} is forgotten, and its state is {state}"));
        }
        for claim in model.claims(&loaded.folded).unwrap() {
            let other = claimed.insert(claim.clone(), key.clone());
            work.log.expect(other.is_none(), || format!("{key} and {other:?} have {claim}"));
            work.log.count("claim held");
        }
    }
    for email in EMAILS {
        let claim = Claim::new("personal-email", email.to_lowercase());
        let holder = store.claim(&claim).await.unwrap().map(|row| row.holder());
        work.log.expect(holder.as_ref() == claimed.get(&claim), || {
            format!("{holder:?} has {claim}, but by the states {:?} has it", claimed.get(&claim))
        });
    }
}

/// A store without faults.
fn store(database: &Database) -> EventStore {
    database.store(Arc::default(), StoreSettings::new(TABLE))
}
