//! A bounded rate.

use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// Turns at a bounded rate, for however many take them side by side.
#[derive(Debug)]
pub struct Pacer {
    interval: Duration,
    next: Mutex<Instant>,
}

impl Pacer {
    /// So many turns a second.
    pub fn new(per_second: NonZeroU32) -> Self {
        Self { interval: Duration::from_secs(1) / per_second.get(), next: Mutex::new(Instant::now()) }
    }

    /// Waits for a turn. Turns that nobody took are lost.
    pub async fn turn(&self) {
        let at = {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            let at = (*next).max(Instant::now());
            *next = at + self.interval;
            at
        };
        sleep_until(at).await;
    }
}
