//! Random pauses between attempts while DynamoDB throttles or fails.

use std::time::Duration;

use tokio::time::Instant;

use crate::error::StoreError;

/// Maximum of the first pause while DynamoDB throttles or fails.
const FIRST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_millis(800);

/// The maximum of the next pause, and the time until which pauses are allowed.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    ceiling: Duration,
    deadline: Instant,
}

impl Backoff {
    /// Pauses that become longer, because DynamoDB needs time. They end before `deadline`.
    pub fn until(deadline: Instant) -> Self {
        Self { ceiling: FIRST, deadline }
    }

    /// Waits a random time below the maximum. Returns `false`, without waiting, when the pause would not end before
    /// the deadline.
    pub async fn wait(&mut self) -> bool {
        let pause = self.next_pause();
        let has_time = Instant::now() + pause < self.deadline;
        if has_time {
            tokio::time::sleep(pause).await;
        }
        has_time
    }

    /// Waits a random time below the maximum, but at most until the deadline, so that one attempt is made at the deadline.
    /// Returns `false`, without waiting, once the deadline has passed.
    pub(crate) async fn wait_to_deadline(&mut self) -> bool {
        let left = self.deadline.saturating_duration_since(Instant::now());
        tokio::time::sleep(self.next_pause().min(left)).await;
        !left.is_zero()
    }

    /// Waits as [`wait`](Self::wait) does, or returns an error with this cause.
    pub async fn wait_or_fail(&mut self, doing: &'static str, cause: &'static str) -> Result<(), StoreError> {
        if self.wait().await { Ok(()) } else { Err(StoreError::Unavailable { doing, source: cause.into() }) }
    }

    fn next_pause(&mut self) -> Duration {
        let pause = self.ceiling.mul_f64(fastrand::f64());
        self.ceiling = (self.ceiling * 2).min(LONGEST);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn last_attempt_is_made_at_the_deadline() {
        for _ in 0..20 {
            let deadline = Instant::now() + Duration::from_millis(30);
            let mut backoff = Backoff::until(deadline);
            while backoff.wait_to_deadline().await {}
            assert!(Instant::now() >= deadline);
        }
    }
}
