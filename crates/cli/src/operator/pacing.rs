//! A bounded rate, until Ctrl-C.

use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::Interrupt;

/// Turns at a bounded rate, for however many take them side by side.
#[derive(Debug)]
pub struct Pacer {
    interval: Duration,
    next: Mutex<Instant>,
    interrupt: Interrupt,
}

impl Pacer {
    /// So many turns a second.
    pub fn new(per_second: NonZeroU32, interrupt: Interrupt) -> Self {
        Self { interval: Duration::from_secs(1) / per_second.get(), next: Mutex::new(Instant::now()), interrupt }
    }

    /// Waits for a turn; there is none any more after Ctrl-C. Turns that nobody took are lost.
    pub async fn turn(&self) -> Option<()> {
        let at = {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            let at = (*next).max(Instant::now());
            *next = at + self.interval;
            at
        };
        tokio::select! {
            biased;
            () = self.interrupt.wait() => None,
            () = sleep_until(at) => Some(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::watch;

    use super::*;

    #[tokio::test]
    async fn who_waits_for_a_turn_gets_none_after_ctrl_c() {
        let stop = watch::Sender::new(false);
        let pacer = Pacer::new(NonZeroU32::MIN, Interrupt::by(stop.subscribe()));
        assert_eq!(pacer.turn().await, Some(()));
        let waiting = async { tokio::join!(pacer.turn(), pacer.turn()) };
        let ctrl_c = async { stop.send_replace(true) };
        assert_eq!(tokio::join!(waiting, ctrl_c).0, (None, None));
    }

    #[tokio::test]
    async fn no_turn_is_taken_after_ctrl_c() {
        let stop = watch::Sender::new(true);
        assert_eq!(Pacer::new(NonZeroU32::MAX, Interrupt::by(stop.subscribe())).turn().await, None);
    }
}
