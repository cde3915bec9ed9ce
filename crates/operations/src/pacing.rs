//! Whether an operation must end, because of Ctrl-C, and a rate limit that ends with it.

#[cfg(test)]
mod tests;

use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// Aggregates that are compared, for each one that may be sent.
pub(crate) const COMPARED_PER_SENT: usize = 10;

/// Turns at a bounded rate, shared by concurrent tasks.
#[derive(Debug)]
pub struct Pacer {
    period: Duration,
    next: Mutex<Instant>,
    interrupt: Interrupt,
}

impl Pacer {
    pub fn new(per_second: NonZeroU32, interrupt: Interrupt) -> Self {
        Self { period: Duration::from_secs(1) / per_second.get(), next: Mutex::new(Instant::now()), interrupt }
    }

    /// Waits for a turn; returns `None` after Ctrl-C. Unused turns are not saved up.
    pub async fn turn(&self) -> Option<()> {
        self.turns(1).await
    }

    /// Waits for a turn, and takes the `count - 1` turns after it too; returns `None` after Ctrl-C.
    pub async fn turns(&self, count: usize) -> Option<()> {
        let at = {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            let at = (*next).max(Instant::now());
            *next = at + self.period * u32::try_from(count).unwrap_or(u32::MAX);
            at
        };
        // A timer has a resolution of a millisecond, so a turn that is due does not wait for one.
        let turn = async {
            if at > Instant::now() {
                sleep_until(at).await
            }
        };
        self.interrupt.run_until_cancelled(turn).await
    }
}

/// Whether an operation must end. Clones share one state.
pub type Interrupt = CancellationToken;
