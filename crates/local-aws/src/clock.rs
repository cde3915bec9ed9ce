//! The clock of the local stack: the machine's clock, and how far ahead of it the stack is.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use jiff::{Span, SpanRelativeTo, SpanRound, Timestamp, Unit};
use serde::{Deserialize, Serialize};

/// A clock that is some time ahead of the machine's, and is only moved forward: when that of the machine is set back, it goes
/// on, because the ids of later events sort after those of earlier ones. Clones share it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(from = "(Ahead, SystemTime)", into = "(Ahead, SystemTime)")]
pub struct LocalClock {
    seconds_ahead: Arc<AtomicU64>,
    /// The latest time, and when it was.
    latest: Arc<Mutex<Option<(SystemTime, Instant)>>>,
}

/// How far a clock is ahead of the machine's, or is moved forward, in whole seconds: `14d 2h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ahead {
    pub seconds: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MoveError {
    /// The clock never moves back, because the times of an aggregate's events never do.
    #[error("{0:?} is not a duration of at least 1s; give one such as 90s, 30m, 2h or 14d")]
    NotForward(String),
    #[error("the clock can be at most {} ahead of the machine's; give at most {left}", Ahead::MAX)]
    TooFar { left: Ahead },
}

impl Ahead {
    /// The maximum: about 100 years. The last time that can be stored is at the end of the year 9999, and the rows of the
    /// table expire up to a year after they are written.
    pub const MAX: Self = Self { seconds: 36_500 * 24 * 60 * 60 };

    pub fn moved(self, by: Self) -> Result<Self, MoveError> {
        let moved = Self { seconds: self.seconds.saturating_add(by.seconds) };
        let left = Self { seconds: Self::MAX.seconds.saturating_sub(self.seconds) };
        if moved > Self::MAX { Err(MoveError::TooFar { left }) } else { Ok(moved) }
    }

    fn duration(self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

impl LocalClock {
    pub fn now(&self) -> SystemTime {
        self.at(SystemTime::now())
    }

    /// The time while the machine's clock shows this.
    fn at(&self, machine: SystemTime) -> SystemTime {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let continued = latest.map(|(time, at)| time + at.elapsed());
        let now = (machine + self.ahead().duration()).max(continued.unwrap_or(UNIX_EPOCH));
        *latest = Some((now, Instant::now()));
        now
    }

    pub fn timestamp(&self) -> Timestamp {
        // The maximum is far below the last timestamp.
        Timestamp::try_from(self.now()).unwrap_or(Timestamp::MAX)
    }

    pub fn since_1970(&self) -> Duration {
        self.now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }

    pub fn milliseconds(&self) -> u64 {
        u64::try_from(self.since_1970().as_millis()).unwrap_or(u64::MAX)
    }

    pub fn ahead(&self) -> Ahead {
        Ahead { seconds: self.seconds_ahead.load(Ordering::SeqCst) }
    }

    /// Moves it so that it is this far ahead, unless it is further.
    pub fn advance_to(&self, ahead: Ahead) {
        self.seconds_ahead.fetch_max(ahead.seconds.min(Ahead::MAX.seconds), Ordering::SeqCst);
    }
}

impl From<(Ahead, SystemTime)> for LocalClock {
    fn from((ahead, now): (Ahead, SystemTime)) -> Self {
        let clock = Self { latest: Arc::new(Mutex::new(Some((now, Instant::now())))), ..Self::default() };
        clock.advance_to(ahead);
        clock
    }
}

impl From<LocalClock> for (Ahead, SystemTime) {
    fn from(clock: LocalClock) -> Self {
        (clock.ahead(), clock.now())
    }
}

impl fmt::Display for Ahead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = i64::try_from(self.seconds).ok().and_then(|seconds| Span::new().try_seconds(seconds).ok());
        let in_days = SpanRound::new().largest(Unit::Day).days_are_24_hours();
        write!(f, "{:#}", seconds.and_then(|span| span.round(in_days).ok()).ok_or(fmt::Error)?)
    }
}

impl FromStr for Ahead {
    type Err = MoveError;

    fn from_str(text: &str) -> Result<Self, MoveError> {
        let span = text.parse::<Span>().ok();
        let duration = span.and_then(|span| span.to_duration(SpanRelativeTo::days_are_24_hours()).ok());
        let seconds = duration.and_then(|duration| u64::try_from(duration.as_secs()).ok());
        let forward = seconds.filter(|seconds| *seconds > 0).map(|seconds| Self { seconds });
        forward.ok_or_else(|| MoveError::NotForward(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(from: u64, by: &str) -> Result<u64, MoveError> {
        Ok(Ahead { seconds: from }.moved(by.parse()?)?.seconds)
    }

    #[test]
    fn move_is_a_duration_of_at_least_a_second() {
        for (text, seconds) in
            [("1s", 1), ("90s", 90), ("30m", 1_800), ("2h", 7_200), ("14d", 1_209_600), ("1d 2h", 93_600)]
        {
            assert_eq!(moved(5, text), Ok(seconds + 5), "{text}");
        }
        for text in ["", "d", "14", "1 month", "é", "tomorrow", "0s", "00d", "-0h", "-1d", "99999999999999999999d"] {
            assert_eq!(moved(0, text), Err(MoveError::NotForward(text.to_owned())), "{text}");
        }
    }

    #[test]
    fn clock_is_at_most_a_hundred_years_ahead() {
        assert_eq!(moved(0, "36500d"), Ok(Ahead::MAX.seconds));
        for (from, by) in [(0, "36501d"), (1, "36500d"), (Ahead::MAX.seconds, "1s")] {
            assert!(matches!(moved(from, by), Err(MoveError::TooFar { .. })), "{from} {by}");
        }
        let error = moved(60, "36500d").unwrap_err().to_string();
        assert_eq!(error, "the clock can be at most 36500d ahead of the machine's; give at most 36499d 23h 59m");
        let last = LocalClock::from((Ahead::MAX, UNIX_EPOCH)).timestamp();
        assert_eq!(format!("{last:.3}").len(), "2026-11-23T08:00:00.000Z".len(), "{last}");
    }

    #[test]
    fn clock_is_ahead_and_never_moves_back() {
        let clock = LocalClock::default();
        let shared = clock.clone();
        let day = Ahead { seconds: 24 * 60 * 60 };
        let before = SystemTime::now();
        clock.advance_to(day);
        assert!(shared.now() >= before + day.duration());
        shared.advance_to(Ahead { seconds: 60 });
        assert_eq!((clock.ahead(), clock.ahead().to_string()), (day, "1d".to_owned()));
        assert_eq!(Ahead::default().to_string(), "0s");
        assert_eq!(Ahead { seconds: 93_784 }.to_string(), "1d 2h 3m 4s");
    }

    #[test]
    fn clock_of_another_process_is_as_far_ahead() {
        let clock = LocalClock::from((Ahead { seconds: 90 }, UNIX_EPOCH));
        let other = in_another_process(&clock);
        assert_eq!(other.ahead().seconds, 90);
        other.advance_to(Ahead { seconds: 100 });
        assert_eq!((clock.ahead().seconds, other.ahead().seconds), (90, 100));
    }

    fn in_another_process(clock: &LocalClock) -> LocalClock {
        serde_json::from_str(&serde_json::to_string(clock).unwrap()).unwrap()
    }

    #[test]
    fn clock_goes_on_when_that_of_the_machine_is_set_back() {
        let clock = LocalClock::default();
        let later = SystemTime::now() + Duration::from_hours(1);
        assert_eq!(clock.at(later), later);
        let set_back = [clock.now(), in_another_process(&clock).now(), clock.now()];
        assert!(later <= set_back[0] && set_back.is_sorted(), "{later:?}, {set_back:?}");
        let past = SystemTime::now() + Duration::from_hours(2);
        assert_eq!(clock.at(past), past);
    }
}
