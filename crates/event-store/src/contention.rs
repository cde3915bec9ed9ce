//! The races that this process loses against other processes, by aggregate, and the pauses that they cause.
//!
//! A transaction that loses a race costs its write units too. Processes that write to the same aggregate therefore
//! limit their attempts. Each process has a rate, with additive increase and multiplicative decrease: it grows steadily
//! with time, and every lost race multiplies it by a factor below one. Such rates approach each other, whatever they
//! were at first, so each process gets an equal share.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use daybook_table::AggregateKey;
use tokio::time::Instant;

/// Maximum pause after a lost race, if the aggregate is not contended.
const SHORT_PAUSE: Duration = Duration::from_millis(10);

/// Time without a write of another process after which an aggregate is not contended. The next command is then appended
/// without a pause and without a read.
const QUIET: Duration = Duration::from_secs(1);

/// The highest rate of a process on a contended aggregate, in attempts per second.
const HIGHEST_RATE: f64 = 30.0;

/// The growth of the rate in each second, in attempts per second.
const GROWTH: f64 = 5.0;

/// The factor by which a lost race multiplies the rate.
const AFTER_A_LOSS: f64 = 0.7;

/// The factor by which the rate is multiplied if no other process has written since the last attempt.
const WITHOUT_OTHERS: f64 = 2.0;

/// Number of aggregates from which those that are not contended any more are removed.
const MAX_ENTRIES: usize = 1_000;

/// The aggregates for which this process has lost a race recently.
#[derive(Debug, Default)]
pub(crate) struct Contention(Mutex<HashMap<AggregateKey, Contended>>);

#[derive(Clone, Copy, Debug)]
struct Contended {
    /// When a write of another process was last noticed.
    noticed: Instant,
    /// The rate, and the time at which it had this value; `None` after a single lost race.
    rate: Option<(f64, Instant)>,
}

impl Contended {
    /// The current rate, in attempts per second.
    fn rate(&self, now: Instant) -> Option<f64> {
        let (rate, at) = self.rate.filter(|_| now < self.noticed + QUIET)?;
        Some((rate + GROWTH * (now - at).as_secs_f64()).min(HIGHEST_RATE))
    }
}

impl Contention {
    /// The pause before the first attempt of a request. The state has to be read after the pause. `None` if the
    /// aggregate is not contended.
    pub(crate) fn first_pause(&self, key: &AggregateKey) -> Option<Duration> {
        self.rate(key).map(|rate| random_pause(1.0 / rate))
    }

    /// The pause before the attempt that follows a lost race.
    pub(crate) fn pause(&self, key: &AggregateKey) -> Duration {
        match self.rate(key) {
            Some(rate) => random_pause(1.0 / rate),
            None => SHORT_PAUSE.mul_f64(fastrand::f64()),
        }
    }

    /// Records a lost race: another process was faster.
    pub(crate) fn lost(&self, key: &AggregateKey) {
        let now = Instant::now();
        let mut all = self.lock();
        if all.len() >= MAX_ENTRIES {
            all.retain(|_, known| now < known.noticed + QUIET);
        }
        let known = all.get(key).copied().filter(|known| now < known.noticed + QUIET);
        let rate = known.map(|known| (known.rate(now).unwrap_or(HIGHEST_RATE) * AFTER_A_LOSS, now));
        all.insert(key.clone(), Contended { noticed: now, rate });
    }

    /// Records that a read before an attempt has found this number of events of other processes.
    pub(crate) fn found(&self, key: &AggregateKey, events: u64) {
        let now = Instant::now();
        let mut all = self.lock();
        let Some(known) = all.get_mut(key) else { return };
        match known.rate(now) {
            Some(_) if events > 0 => known.noticed = now,
            Some(rate) => known.rate = Some((rate * WITHOUT_OTHERS, now)),
            None => {}
        }
    }

    fn rate(&self, key: &AggregateKey) -> Option<f64> {
        self.lock().get(key)?.rate(Instant::now())
    }

    /// A panic while the lock was held cannot have left an entry half-written.
    fn lock(&self) -> MutexGuard<'_, HashMap<AggregateKey, Contended>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A random pause with this mean, in seconds.
fn random_pause(mean: f64) -> Duration {
    Duration::from_secs_f64(2.0 * mean * fastrand::f64())
}
