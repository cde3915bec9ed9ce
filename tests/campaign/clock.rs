//! Virtual time: it does not advance while a task can run, and jumps to the next timer when none can.

use std::future::Future;
use std::time::Duration;

use jiff::Timestamp;
use tokio::task::LocalSet;
use tokio::time::Instant;

/// 2030-01-01, as time since 1970.
const BEGINNING: Duration = Duration::from_secs(1_893_456_000);

/// Runs `future` on this thread, in virtual time. It must not use sockets: waiting for one would look like idleness.
pub(crate) fn in_virtual_time<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    LocalSet::new().block_on(&runtime, future)
}

/// The wall clock of a schedule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// The time since 1970.
    pub(crate) fn now(self) -> Duration {
        BEGINNING + self.start.elapsed()
    }

    /// The same, to the millisecond.
    pub(crate) fn timestamp(self) -> Timestamp {
        Timestamp::from_millisecond(i64::try_from(self.now().as_millis()).unwrap()).unwrap()
    }

    /// The time since the start.
    pub(crate) fn passed(self) -> Duration {
        self.start.elapsed()
    }

    /// Converts a time since 1970 to an instant of the runtime.
    pub(crate) fn instant(self, at: Duration) -> Instant {
        self.start + at.saturating_sub(BEGINNING)
    }
}
