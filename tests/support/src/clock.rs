//! The time of decisions in tests.

use std::sync::atomic::{AtomicU64, Ordering};

use daybook_decider::{Caller, DecisionInput, Meta};
use jiff::Timestamp;
use ulid::Ulid;

/// The clock of the process, which starts at 2030-01-01.
static CLOCK: TestClock = TestClock::starting_at(1_893_456_000_000);

/// The time of the process's clock, a millisecond later at every call.
pub fn now() -> Timestamp {
    CLOCK.now()
}

/// Decision input at the time of the process's clock, a millisecond later at every call.
pub fn next_input() -> DecisionInput {
    CLOCK.next_input()
}

/// A clock that advances by a millisecond at every call, so that ids sort in the order in which they were made.
#[derive(Debug)]
pub struct TestClock {
    milliseconds: AtomicU64,
}

impl TestClock {
    /// A clock whose first time is this number of milliseconds after 1970-01-01.
    pub const fn starting_at(milliseconds: u64) -> Self {
        Self { milliseconds: AtomicU64::new(milliseconds) }
    }

    /// The next time.
    pub fn now(&self) -> Timestamp {
        timestamp(self.tick())
    }

    /// Decision input at the next time, with a random seed and without metadata.
    pub fn next_input(&self) -> DecisionInput {
        let milliseconds = self.tick();
        let seed = Ulid::from_parts(milliseconds, fastrand::u128(..));
        DecisionInput::new(timestamp(milliseconds), seed, Meta::default(), Caller::anonymous(), 1)
    }

    fn tick(&self) -> u64 {
        self.milliseconds.fetch_add(1, Ordering::Relaxed)
    }
}

fn timestamp(milliseconds: u64) -> Timestamp {
    Timestamp::from_millisecond(i64::try_from(milliseconds).unwrap()).unwrap()
}
