//! How a process limits its attempts on an aggregate to which others write too. The rules are those of the event store
//! (`crates/event-store/src/contention.rs`).

/// Maximum of the pause after a single lost race, in seconds.
const SHORT_PAUSE: f64 = 0.010;
/// Seconds without a write of another process after which the aggregate is not contended.
const QUIET: f64 = 1.0;
/// The highest rate, in attempts per second.
const HIGHEST_RATE: f64 = 30.0;
/// The growth of the rate in a second.
const GROWTH: f64 = 5.0;
/// The factor of the rate after a lost race.
const AFTER_A_LOSS: f64 = 0.7;
/// The factor of the rate when no other process has written since the last attempt.
const WITHOUT_OTHERS: f64 = 2.0;

/// What a process knows of the contention. All times are in seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pacing {
    /// When a write of another process was last noticed.
    noticed: Option<f64>,
    /// The rate at a time; `None` after a single lost race.
    rate: Option<(f64, f64)>,
}

impl Pacing {
    fn is_noticed(&self, now: f64) -> bool {
        self.noticed.is_some_and(|noticed| now < noticed + QUIET)
    }

    fn rate(&self, now: f64) -> Option<f64> {
        let (rate, at) = self.rate.filter(|_| self.is_noticed(now))?;
        Some((rate + GROWTH * (now - at)).min(HIGHEST_RATE))
    }

    /// The pause before an attempt, by a random number below 1; `None` without a pause.
    pub(super) fn pause(&self, now: f64, is_after_loss: bool, random: f64) -> Option<f64> {
        match self.rate(now) {
            Some(rate) => Some(2.0 / rate * random),
            None => is_after_loss.then_some(SHORT_PAUSE * random),
        }
    }

    pub(super) fn lost(&mut self, now: f64) {
        let rate = self.rate(now).unwrap_or(HIGHEST_RATE) * AFTER_A_LOSS;
        self.rate = self.is_noticed(now).then_some((rate, now));
        self.noticed = Some(now);
    }

    /// A read has found this number of events of other processes.
    pub(super) fn found(&mut self, now: f64, events: u32) {
        match self.rate(now) {
            Some(_) if events > 0 => self.noticed = Some(now),
            Some(rate) => self.rate = Some((rate * WITHOUT_OTHERS, now)),
            None => {}
        }
    }
}
