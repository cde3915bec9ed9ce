//! Runs all schedules.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::log::LogContents;
use crate::schedule;

/// The number of schedules in a normal run.
const SCHEDULES: u64 = 1_000;

/// The maximum number of failing seeds that are reported.
const MAX_REPORTED_FAILURES: usize = 3;

/// The kinds that must occur in a thousand schedules; otherwise the campaign does not cover them.
const REQUIRED_KINDS: [&str; 66] = [
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
    "deadline pressure",
    "discarded for RecordAgeExceeded",
    "discarded for RetryAttemptsExhausted",
    "function throttled",
    "invocation abandoned",
    "large messages",
    "many aggregates",
    "mapping restarts at its position",
    "mapping restarts at the first record",
    "message delivered again",
    "noise: a row that TTL deletes",
    "noise: a row that changes",
    "noise: a snapshot",
    "noise: a stored response",
    "order guaranteed within a batch",
    "order guaranteed",
    "poison: a row of no aggregate",
    "poison: a row without an image",
    "poison: a row without attributes",
    "poison: keys of another table",
    "queue Denied",
    "queue HangsAfter",
    "queue LostAfter",
    "record without a number",
    "records repeated in a batch",
    "records shuffled in a batch",
    "rejection recorded",
    "relay crash between steps",
    "response lost",
    "row expired",
    "stream out of order",
    "writer crash",
];

#[test]
fn schedules_keep_every_promise() {
    if let Some(seed) = number("CAMPAIGN_SEED") {
        return replay(seed);
    }
    let count = number("CAMPAIGN_SCHEDULES").unwrap_or(SCHEDULES);
    let counts = Mutex::new(BTreeMap::<String, u64>::new());
    let failures = Mutex::new(BTreeMap::new());
    let next = AtomicU64::new(0);
    let work = || {
        while failures.lock().unwrap().len() < MAX_REPORTED_FAILURES {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= count {
                return;
            }
            let contents = catch_unwind(AssertUnwindSafe(|| schedule::run(seed, false)));
            let contents = contents
                .unwrap_or_else(|_| LogContents { violations: vec!["it panics".to_owned()], ..LogContents::default() });
            let mut counts = counts.lock().unwrap();
            contents.counts.into_iter().for_each(|(kind, times)| *counts.entry(kind).or_default() += times);
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
    let counts = counts.into_inner().unwrap();
    eprintln!("{count} schedules: {counts:#?}");
    if count >= SCHEDULES {
        let missed: Vec<_> = REQUIRED_KINDS.iter().filter(|kind| !counts.contains_key(**kind)).collect();
        assert!(missed.is_empty(), "never occurred: {missed:?}");
    }
}

#[test]
fn repeated_seed_produces_the_same_log() {
    for seed in 0..12 {
        let (first, second) = (schedule::run(seed, true), schedule::run(seed, true));
        for (first, second) in first.lines.iter().zip(&second.lines) {
            assert_eq!(first, second, "seed {seed}");
        }
        assert_eq!(first, second, "seed {seed}");
    }
}

fn replay(seed: u64) {
    let contents = schedule::run(seed, true);
    contents.lines.iter().for_each(|line| eprintln!("{line:.500}"));
    assert!(contents.violations.is_empty(), "seed {seed}: {:#?}", contents.violations);
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}, expected a number")))
}
