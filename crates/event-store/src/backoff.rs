//! Pauses between attempts: exponential with full jitter, so that writers that collided spread out.

use std::time::Duration;

use tokio::time::Instant;

const FIRST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_millis(800);

/// The maximum of the next pause, and the time until which pauses are allowed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    ceiling: Duration,
    deadline: Instant,
}

impl Backoff {
    /// Allows pauses that end before `deadline`.
    pub(crate) fn until(deadline: Instant) -> Self {
        Self { ceiling: FIRST, deadline }
    }

    /// Waits a random time below a maximum that doubles. Returns `false`, without waiting, when the pause would not
    /// end before the deadline.
    pub(crate) async fn wait(&mut self) -> bool {
        let pause = self.ceiling.mul_f64(fastrand::f64());
        self.ceiling = (self.ceiling * 2).min(LONGEST);
        if Instant::now() + pause >= self.deadline {
            return false;
        }
        tokio::time::sleep(pause).await;
        true
    }
}
