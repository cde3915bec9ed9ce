//! A rate limit that ends with Ctrl-C.

use std::num::NonZeroU32;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::interrupt::Interrupt;

/// Turns at a bounded rate, shared by concurrent tasks.
#[derive(Debug)]
pub(crate) struct Pacer {
    interval: Mutex<Interval>,
    interrupt: Interrupt,
}

impl Pacer {
    /// A pacer that gives `per_second` turns per second.
    pub(crate) fn new(per_second: NonZeroU32, interrupt: Interrupt) -> Self {
        let mut interval = interval((Duration::from_secs(1) / per_second.get()).max(Duration::from_nanos(1)));
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { interval: Mutex::new(interval), interrupt }
    }

    /// Waits for a turn; returns `None` after Ctrl-C. Unused turns are not saved up.
    pub(crate) async fn turn(&self) -> Option<()> {
        tokio::select! {
            biased;
            () = self.interrupt.wait() => None,
            _ = async { self.interval.lock().await.tick().await } => Some(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::watch;

    use super::*;

    #[tokio::test]
    async fn pacer_interrupted_while_tasks_wait_gives_no_turn() {
        let stop = watch::Sender::new(false);
        let pacer = Pacer::new(NonZeroU32::MIN, Interrupt::by(stop.subscribe()));
        assert_eq!(pacer.turn().await, Some(()));
        let waiting = async { tokio::join!(pacer.turn(), pacer.turn()) };
        let ctrl_c = async { stop.send_replace(true) };
        assert_eq!(tokio::join!(waiting, ctrl_c).0, (None, None));
    }

    #[tokio::test]
    async fn pacer_interrupted_before_the_first_turn_gives_no_turn() {
        let stop = watch::Sender::new(true);
        assert_eq!(Pacer::new(NonZeroU32::MAX, Interrupt::by(stop.subscribe())).turn().await, None);
    }
}
