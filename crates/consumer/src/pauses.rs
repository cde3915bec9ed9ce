//! Random pauses between attempts at a call that the table does not carry out yet.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Maximum length of the first pause.
const FIRST: Duration = Duration::from_millis(10);

/// Maximum length of every pause.
const LONGEST: Duration = Duration::from_millis(500);

/// Pauses that become longer. They end before the time of the invocation is up.
#[derive(Debug)]
pub(crate) struct Pauses {
    longest: Duration,
    cutoff: Instant,
}

impl Pauses {
    /// Pauses until `cutoff`.
    pub(crate) fn until(cutoff: Instant) -> Self {
        Self { longest: FIRST, cutoff }
    }

    /// Waits a random time. Returns `false`, without waiting, if the pause would not end before the cutoff.
    pub(crate) async fn wait(&mut self) -> bool {
        let pause = self.longest.mul_f64(fastrand::f64());
        self.longest = LONGEST.min(self.longest * 2);
        let has_time = Instant::now() + pause < self.cutoff;
        if has_time {
            sleep(pause).await;
        }
        has_time
    }
}
