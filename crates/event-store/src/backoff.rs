//! Random pauses between attempts, so that writers that collided spread out.

use std::time::Duration;

use tokio::time::Instant;

/// Maximum of the first pause while DynamoDB throttles or fails.
const FIRST: Duration = Duration::from_millis(10);
/// Maximum of every pause while DynamoDB throttles or fails.
const LONGEST: Duration = Duration::from_millis(800);
/// Maximum of every pause after a lost race.
const AFTER_A_RACE: Duration = Duration::from_millis(10);

/// The maximum of the next pause, and the time until which pauses are allowed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    ceiling: Duration,
    longest: Duration,
    deadline: Instant,
}

impl Backoff {
    /// Pauses that become longer, because DynamoDB needs time. They end before `deadline`.
    pub(crate) fn until(deadline: Instant) -> Self {
        Self { ceiling: FIRST, longest: LONGEST, deadline }
    }

    /// Short pauses after a race with another writer, which has finished or is about to: a long pause would only let
    /// others overtake again. They end before `deadline`.
    pub(crate) fn of_race(deadline: Instant) -> Self {
        Self { ceiling: AFTER_A_RACE, longest: AFTER_A_RACE, deadline }
    }

    /// Waits a random time below the maximum. Returns `false`, without waiting, when the pause would not end before
    /// the deadline.
    pub(crate) async fn wait(&mut self) -> bool {
        let pause = self.ceiling.mul_f64(fastrand::f64());
        self.ceiling = (self.ceiling * 2).min(self.longest);
        if Instant::now() + pause >= self.deadline {
            return false;
        }
        tokio::time::sleep(pause).await;
        true
    }
}
