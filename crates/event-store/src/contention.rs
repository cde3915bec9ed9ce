//! The races of this process with other processes, by aggregate, and the pauses that they cause.
//!
//! A transaction that loses a race costs its write units too, and one that wins leaves no trace of those that it has
//! beaten. Processes that write to the same aggregate therefore limit their attempts, also those that win. Each process
//! has a rate, which grows steadily with time. A lost race lowers it. So does an append that no other process has followed:
//! a process whose calls take longer then gets the time for an attempt.
//!
//! Once two processes have noticed each other, which takes them a few lost races, and seldom some seconds, the one with fewer
//! writes gets at least 60 % of the other's number if their calls take equally long, half if its calls take three times as
//! long, and a fourth if they take ten times as long. This holds for the processes, whatever the number of their requests.
//! Among many, a process whose calls take ten times as long as those of all others can starve.
//!
//! A pause takes at most a fourth of the time that the request with the turn has left, so pauses alone use up nobody's
//! whole time.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use daybook_table::AggregateKey;
use tokio::time::Instant;

/// Time without a write of another process after which an aggregate is not contended. The next command is then appended
/// without a pause and without a read.
const QUIET: Duration = Duration::from_secs(2);

/// The highest rate of a process on a contended aggregate, in attempts per second.
const HIGHEST_RATE: f64 = 30.0;

/// The growth of the rate in each second, in attempts per second.
const GROWTH: f64 = 10.0;

/// The factor of the rate after a lost race, and after an append that no other process has followed.
const GIVE_WAY: f64 = 0.7;

/// With this many aggregates, those that are not contended any more are removed.
const MAX_ENTRIES: usize = 1_000;

/// The aggregates to which other processes have written recently.
#[derive(Debug, Default)]
pub(crate) struct Contention(Mutex<HashMap<AggregateKey, Contended>>);

#[derive(Clone, Copy, Debug)]
struct Contended {
    /// When a write of another process was last noticed.
    noticed: Instant,
    /// The rate, and the time at which it had this value.
    rate: (f64, Instant),
}

impl Contended {
    fn is_recent(&self, now: Instant) -> bool {
        now < self.noticed + QUIET
    }

    fn rate(&self, now: Instant) -> f64 {
        let (rate, at) = self.rate;
        (rate + GROWTH * (now - at).as_secs_f64()).min(HIGHEST_RATE)
    }
}

impl Contention {
    /// The pause before an attempt: random, with the mean that the rate allows. The state has to be read after the pause.
    /// `None` if the aggregate is not contended.
    pub(crate) fn pause(&self, key: &AggregateKey) -> Option<Duration> {
        let now = Instant::now();
        let contended = self.lock().get(key).copied().filter(|known| known.is_recent(now))?;
        Some(Duration::from_secs_f64(2.0 / contended.rate(now) * fastrand::f64()))
    }

    /// Records a lost race: another process was faster.
    pub(crate) fn lost(&self, key: &AggregateKey) {
        let now = Instant::now();
        let mut all = self.lock();
        if all.len() >= MAX_ENTRIES {
            all.retain(|_, known| known.is_recent(now));
        }
        let known = all.get(key).filter(|known| known.is_recent(now));
        let rate = known.map_or(HIGHEST_RATE, |known| known.rate(now)) * GIVE_WAY;
        all.insert(key.clone(), Contended { noticed: now, rate: (rate, now) });
    }

    /// Records that a read before an attempt has found this number of events of other processes.
    pub(crate) fn found(&self, key: &AggregateKey, events: u64) {
        let now = Instant::now();
        let mut all = self.lock();
        match all.get_mut(key).filter(|known| known.is_recent(now)) {
            Some(known) if events > 0 => known.noticed = now,
            Some(known) => known.rate = (known.rate(now) * GIVE_WAY, now),
            None => {}
        }
    }

    /// A panic while the lock was held cannot have left an entry half-written.
    fn lock(&self) -> MutexGuard<'_, HashMap<AggregateKey, Contended>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
