//! How a process limits its attempts on an aggregate to which others write too. The rules are those of the event store
//! (`crates/event-store/src/contention.rs`).

/// Seconds without a write of another process after which the aggregate is not contended.
const QUIET: f64 = 2.0;
/// The highest rate, in attempts per second.
const HIGHEST_RATE: f64 = 30.0;
/// The growth of the rate in a second.
const GROWTH: f64 = 10.0;
/// The factor of the rate after a lost race, and after an append that no other process has followed.
const GIVE_WAY: f64 = 0.7;

/// What a process knows of the contention. All times are in seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pacing {
    /// When a write of another process was last noticed.
    noticed: f64,
    /// The rate at a time.
    rate: Option<(f64, f64)>,
}

impl Pacing {
    fn rate(&self, now: f64) -> Option<f64> {
        let (rate, at) = self.rate.filter(|_| now < self.noticed + QUIET)?;
        Some((rate + GROWTH * (now - at)).min(HIGHEST_RATE))
    }

    /// The pause before an attempt, by a random number below 1; `None` without a pause.
    pub(super) fn pause(&self, now: f64, random: f64) -> Option<f64> {
        self.rate(now).map(|rate| 2.0 / rate * random)
    }

    pub(super) fn lost(&mut self, now: f64) {
        let rate = self.rate(now).unwrap_or(HIGHEST_RATE) * GIVE_WAY;
        *self = Self { noticed: now, rate: Some((rate, now)) };
    }

    /// A read has found this number of events of other processes.
    pub(super) fn found(&mut self, now: f64, events: u32) {
        match self.rate(now) {
            Some(_) if events > 0 => self.noticed = now,
            Some(rate) => self.rate = Some((rate * GIVE_WAY, now)),
            None => {}
        }
    }
}
