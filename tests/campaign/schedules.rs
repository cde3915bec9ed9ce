//! Runs all schedules.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::log::LogContents;
use crate::{deadlines, erasure, joint, processes, read_models, schedule};

/// The number of schedules in a normal run.
const SCHEDULES: u64 = 120;

/// The number of schedules from which each required kind must occur.
const COVERING_SCHEDULES: u64 = 1_000;

/// The part of the campaign that runs a schedule of a seed.
type Part = fn(seed: u64, verbose: bool) -> LogContents;

/// The parts, each with its name, and the seeds that it has a schedule for: those with a remainder of a division.
const PARTS: [(&str, Part, (u64, u64)); 6] = [
    ("messages", schedule::run, (1, 0)),
    ("read models", read_models::run, (2, 0)),
    ("joint", joint::run, (2, 1)),
    ("deadlines", deadlines::run, (4, 2)),
    ("processes", processes::run, (4, 0)),
    ("erasure", erasure::run, (8, 3)),
];

/// The number of schedules from which the share of each required kind is checked.
const MANY_SCHEDULES: u64 = 10_000;

/// The minimum share of schedules in which a required kind occurs. The seeds of a run in continuous integration are new
/// each time, and no such run may fail by chance. A kind with this share is missing from 1,000 schedules with a
/// probability of (1 - 0.021)^1000 = 6e-10.
const MIN_SHARE: f64 = 0.021;

/// The maximum number of failing seeds that are reported.
const MAX_REPORTED_FAILURES: usize = 3;

/// The kinds that must occur in a thousand schedules; otherwise the campaign does not cover them.
const REQUIRED_KINDS: [&str; 166] = [
    "KMS Failed",
    "KMS Slow",
    "aggregate goes on in another shard",
    "aggregate resumed",
    "aggregate suspended",
    "all seen at once",
    "answer Refused",
    "append NotStored",
    "append Stored",
    "append Unknown",
    "append conflict",
    "append contended",
    "bus Denied",
    "bus DeniedEntry",
    "bus EmptyResults",
    "bus FailedAfter",
    "bus FailedBefore",
    "bus Garbage",
    "bus HangsAfter",
    "bus HangsBefore",
    "bus Invalid",
    "bus Late",
    "bus LostAfter",
    "bus LostBefore",
    "bus MissingResults",
    "bus RejectedEntry",
    "bus Slow",
    "bus SomeEntries",
    "bus Throttled",
    "bus UnknownCode",
    "bus WrongCount",
    "change not deleted",
    "change of an odd form",
    "change queued twice",
    "change received again",
    "change redriven",
    "change returned to the queue",
    "claim held",
    "claim taken",
    "customer forgotten",
    "customer forgotten by a request",
    "damaged row Unreadable",
    "damaged row Unsendable",
    "database Conflict",
    "database Exceeded",
    "database FailedAfter",
    "database HangsAfter",
    "database InProgress",
    "database Late",
    "database LostAfter",
    "database Slow",
    "dead-lettered after failing alone",
    "deadline dropped by an operator",
    "deadline keep fired",
    "deadline lost",
    "deadline of a process fired",
    "deadline of an odd form",
    "deadline pressure",
    "deadline retried",
    "deadline ring fired",
    "deadline that cannot be sent",
    "deadlines rebuilt",
    "discarded for RecordAgeExceeded",
    "discarded for RetryAttemptsExhausted",
    "dispatch Deleted",
    "dispatch Refused",
    "dispatch accepted",
    "dispatch failed",
    "dispatch withdrawn",
    "forgetting crash AfterCall(0)",
    "forgetting crash AfterCall(1)",
    "forgetting crash AfterCall(2)",
    "forgetting crash AfterCall(3)",
    "forgetting crash BeforeCall(0)",
    "forgetting crash BeforeCall(1)",
    "forgetting crash BeforeCall(2)",
    "forgetting crash BeforeCall(3)",
    "function throttled",
    "input Missing",
    "input accepted",
    "input of a diary accepted",
    "invocation abandoned",
    "items visible one after the other",
    "joint append NotStored",
    "joint append Stored",
    "joint append Unknown",
    "joint append contended",
    "joint claim taken",
    "joint rejection recorded",
    "joint response replayed",
    "joint writer crash",
    "keys unprocessed",
    "large messages",
    "load from a snapshot",
    "many aggregates",
    "mapping restarts at its position",
    "mapping restarts at the first record",
    "mark seen",
    "message delivered again",
    "message redriven",
    "message republished",
    "message that fails for a while",
    "needless hint",
    "needless ring",
    "noise: a row that TTL deletes",
    "noise: a row that changes",
    "noise: a snapshot",
    "noise: a stored response",
    "operator command crash",
    "order guaranteed",
    "order guaranteed within a batch",
    "poison: a row of no aggregate",
    "poison: a row without an image",
    "poison: a row without attributes",
    "poison: keys of another table",
    "position resumed",
    "position suspended",
    "process with slow calls",
    "projector crash",
    "queue Denied",
    "queue HangsAfter",
    "queue LostAfter",
    "reaction lost",
    "reaction of an odd form",
    "reaction queued twice",
    "reactor crash",
    "read beside a transaction",
    "record without a number",
    "records repeated in a batch",
    "records shuffled in a batch",
    "redrive while the relay goes on",
    "rejected message in batches that are not split",
    "rejected message in batches that are split",
    "rejection recorded",
    "relay crash between steps",
    "republish",
    "republish while writers go on",
    "request repeated",
    "request sent twice at the same time",
    "requests sent together",
    "response lost",
    "response of the reactor lost",
    "response replayed",
    "restored daybook-campaign",
    "restored daybook-campaign and daybook-campaign-keys",
    "restored daybook-campaign-keys",
    "ring that fails",
    "ringing relay crash",
    "row expired",
    "row read",
    "row read after a position",
    "shard followed by one",
    "shard split in two",
    "snapshots while writers go on",
    "snapshotter cannot reach an aggregate",
    "snapshotter crash",
    "stream out of order",
    "tag of two nodes",
    "tags exchanged",
    "tick missed",
    "transaction in an outage",
    "transaction overlaps another",
    "twin rejected",
    "two ticks at once",
    "used key repeated",
    "writer crash",
];

#[test]
fn schedules_keep_every_promise() {
    if let Some(seed) = number("CAMPAIGN_SEED") {
        return replay(seed);
    }
    let count = number("CAMPAIGN_SCHEDULES").unwrap_or(SCHEDULES);
    let first = number("CAMPAIGN_FIRST_SEED").unwrap_or_default();
    eprintln!("{count} schedules, from seed {first}");
    let occurrences = Mutex::new(BTreeMap::<String, Occurrences>::new());
    let failures = Mutex::new(BTreeMap::new());
    let next = AtomicU64::new(0);
    let work = || {
        while failures.lock().unwrap().len() < MAX_REPORTED_FAILURES {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return;
            }
            let seed = first + number;
            let contents = catch_unwind(AssertUnwindSafe(|| run(seed, false)));
            let contents = contents
                .unwrap_or_else(|_| LogContents { violations: vec!["it panics".to_owned()], ..LogContents::default() });
            let mut occurrences = occurrences.lock().unwrap();
            for (kind, times) in contents.counts {
                let of_kind = occurrences.entry(kind).or_default();
                (of_kind.times, of_kind.schedules) = (of_kind.times + times, of_kind.schedules + 1);
            }
            if !contents.violations.is_empty() {
                failures.lock().unwrap().insert(seed, contents.violations);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(work);
        }
    });

    let failures = failures.into_inner().unwrap();
    for (seed, violations) in &failures {
        eprintln!("\nseed {seed}:");
        violations.iter().take(5).for_each(|violation| eprintln!("  {violation:.1000}"));
        let command = "cargo test -p suite-tests --test campaign schedules -- --nocapture";
        eprintln!("  replay it: CAMPAIGN_SEED={seed} {command}");
    }
    assert!(failures.is_empty(), "schedules failed: {:?}", failures.keys());
    let occurrences = occurrences.into_inner().unwrap();
    eprintln!("{count} schedules, from seed {first}: {occurrences:#?}");
    if only().is_some() {
        return;
    }
    if count >= COVERING_SCHEDULES {
        let missed: Vec<_> = REQUIRED_KINDS.iter().filter(|kind| !occurrences.contains_key(**kind)).collect();
        assert!(missed.is_empty(), "never occurred: {missed:?}");
    }
    if count >= MANY_SCHEDULES {
        let share = |kind: &&str| occurrences[*kind].schedules as f64 / count as f64;
        let too_rare: Vec<_> = REQUIRED_KINDS.iter().filter(|kind| share(kind) < MIN_SHARE).collect();
        assert!(too_rare.is_empty(), "too rare to be in any {COVERING_SCHEDULES} schedules: {too_rare:?}");
    }
}

/// The occurrences of a kind in a run.
#[derive(Debug, Default)]
struct Occurrences {
    times: u64,
    /// The number of schedules with at least one.
    schedules: u64,
}

#[test]
fn repeated_seed_produces_the_same_log() {
    for seed in 0..12 {
        let (first, second) = (run(seed, true), run(seed, true));
        for (first, second) in first.lines.iter().zip(&second.lines) {
            assert_eq!(first, second, "seed {seed}");
        }
        assert_eq!(first, second, "seed {seed}");
    }
}

/// Runs the schedules of a seed one after the other: of its parts, or of one part alone.
fn run(seed: u64, verbose: bool) -> LogContents {
    // Before the first one, because the order of tasks differs with it: a seed has the same schedule alone and after others.
    daybook_test_support::log::install();
    let only = only();
    let mut contents = LogContents::default();
    for (name, part, (every, remainder)) in PARTS {
        if only.as_ref().map_or(seed % every == remainder, |only| only == name) {
            contents.append(part(seed, verbose));
        }
    }
    contents
}

/// The name of the only part that runs.
fn only() -> Option<String> {
    let only = std::env::var("CAMPAIGN_PART").ok()?;
    let parts = PARTS.map(|(name, ..)| name);
    assert!(parts.contains(&&*only), "CAMPAIGN_PART is {only:?}, expected one of {parts:?}");
    Some(only)
}

fn replay(seed: u64) {
    let contents = run(seed, true);
    contents.lines.iter().for_each(|line| eprintln!("{line:.500}"));
    assert!(contents.violations.is_empty(), "seed {seed}: {:#?}", contents.violations);
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}, expected a number")))
}
