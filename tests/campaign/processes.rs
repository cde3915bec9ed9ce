//! The schedules of processes: clients that post notes, the stream, the relay, the tick, an operator, and several instances of
//! the reactor, which hands the notes to errands, sends what they dispatch, and hands both to diaries, all at once, while every
//! part fails.
//!
//! Checked in each schedule, besides the guarantees of [`reactions`](crate::reactions), in the order of the commits: [`replay`].
//! - Each note takes effect once in its errand, or is rejected once, those of a post box in their order; so do each note and each
//!   event of an errand in its diary, also while the errands get no notes. A position moves only over what has an outcome.
//! - Each dispatch has one outcome, while the state declares it, in the order of the errand. Its command is that of the first state
//!   that has declared it. Its answer is input once, before the next dispatch. It is marked only after both.
//! - A deadline fires once, at its time, unless it is dropped before.
//! - In the end, no note, dispatch or deadline is left. What the code could not handle was visible as suspended or failed, and is
//!   handled once the code is repaired, and an operator resumes or retries it.
//! - No request beside them is lost or takes effect twice: [`joint_requests`](crate::joint_requests).

mod diary;
mod errand;
mod replay;

use std::sync::Arc;

use daybook_admin::AdminCalls;
use daybook_decider::{Addressed, AggregateKey, Registry};
use daybook_event_store::StoreSettings;
use daybook_table::{ChangedAggregates, DueDeadline, DueDeadlines};
use futures_util::future::join_all;
use serde_json::json;

use crate::clock::in_virtual_time;
use crate::database::TABLE;
use crate::dice::Dice;
use crate::hint_queue::Hints;
use crate::joint_requests::{Client, JointRequests, addressed};
use crate::log::LogContents;
use crate::reactions::Reactions;
use crate::schedule::verify;
use crate::writers::Work;

use self::diary::Diary;
use self::errand::{ERRANDS, Errand, NAMES, Note, POSTBOXES, Postbox};
use self::replay::Replay;

/// Runs the schedule of a seed and returns its log.
pub(crate) fn run(seed: u64, verbose: bool) -> LogContents {
    in_virtual_time(async {
        let mut dice = Dice::new(seed, "processes");
        let processes = ["errand", "diary"].map(|of| ERRANDS.map(|id| AggregateKey::new(of, id)));
        let keys = POSTBOXES.map(postbox).into_iter().chain(processes.into_iter().flatten()).collect();
        let work = Arc::new(Work::begin(seed, verbose, registry(false), keys));
        let settings = StoreSettings { event_type_shards: dice.one_of(&[1, 3]), ..StoreSettings::new(TABLE) };
        let mut requests = JointRequests::new(&work, settings.clone());
        let store = requests.store(Arc::default());
        store.admin().create_table().await.unwrap();
        join_all(POSTBOXES.map(postbox).iter().map(|key| requests.send(&store, key, "Open", json!({})))).await;
        let reactions = Reactions::start(&work, settings, Hints::Reactions, registry, &mut dice);
        let clients = dice.number(1..=2);
        let client = |number| Client::new(&requests, number, commands, &[0, 10, 1_000, 5_000, 30_000]).run();
        reactions.run(async { drop(join_all((0..clients).map(client)).await) }, hint, &mut dice).await;
        requests.check();
        Replay::new(&work, reactions.dropped.take()).run();
        verify(&work, &store, &work.keys).await;
        work.log.contents()
    })
}

fn registry(is_repaired: bool) -> Registry {
    let registry = Registry::new();
    if is_repaired {
        let sources = registry.with::<Postbox<true>>().and_then(Registry::with::<Errand<true>>);
        sources.and_then(Registry::with::<Diary<true>>)
    } else {
        let sources = registry.with::<Postbox<false>>().and_then(Registry::with::<Errand<false>>);
        sources.and_then(Registry::with::<Diary<false>>)
    }
    .unwrap()
}

fn postbox(id: &str) -> AggregateKey {
    AggregateKey::new("postbox", id)
}

/// The commands of a request: one note or two. The first ones begin the errands.
fn commands(_: &Work, dice: &mut Dice, number: usize) -> Vec<Addressed<'static>> {
    let mut ids = POSTBOXES;
    dice.shuffle(&mut ids);
    let post = |dice: &mut Dice, id: &str| {
        let errand = if number <= ERRANDS.len() { ERRANDS[number - 1] } else { dice.one_of(&ERRANDS) };
        let note = if number <= ERRANDS.len() { Note::of("begin") } else { note(dice) };
        addressed(postbox(id), "Post", json!({"errand": errand, "note": note}))
    };
    match dice.number(0..=19) {
        0 if dice.chance(0.3) => vec![addressed(postbox(POSTBOXES[2]), "Remove", json!({}))],
        1 | 2 => vec![post(dice, ids[0]), post(dice, ids[1])],
        // Two events of an append, of which only the second one may be visible at first.
        3..=6 => {
            let (mut both, second) = (post(dice, ids[0]), post(dice, ids[0]));
            both.commands.to_mut().extend(second.commands.into_owned());
            vec![both]
        }
        _ => vec![post(dice, ids[0])],
    }
}

fn note(dice: &mut Dice) -> Note {
    let kind = match dice.number(0..=39) {
        0 => "jam",
        1 => "end",
        2 => "begin",
        3 | 4 => "refuse",
        5 | 6 => "idle",
        7..=9 => "cancel",
        10..=14 => "wait",
        15..=19 => "replace",
        _ => "ask",
    };
    let mut asks = Vec::new();
    if ["ask", "replace"].contains(&kind) {
        let mut names = NAMES;
        dice.shuffle(&mut names);
        asks.extend(
            names[..dice.size(1..=4)].iter().map(|name| ((*name).to_owned(), dice.one_of(&POSTBOXES).to_owned())),
        );
    }
    Note { asks, seconds: dice.amount(-1..=90), ..Note::of(kind) }
}

/// A message about a dispatch that may not exist, or about an aggregate that may have nothing new.
fn hint(work: &Work, dice: &mut Dice) -> String {
    let key = dice.one_of(&work.keys);
    if key.aggregate_type == "postbox" || dice.chance(0.3) {
        return ChangedAggregates::one(key, 0).to_body();
    }
    let due = DueDeadline { due: work.clock.timestamp(), key, name: dice.one_of(&NAMES).to_owned() };
    DueDeadlines::new(&[due]).to_body()
}
