//! A rate limit that ends with Ctrl-C.

use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::interrupt::Interrupt;

/// Turns at a bounded rate, shared by concurrent tasks.
#[derive(Debug)]
pub(crate) struct Pacer {
    period: Duration,
    /// The time of the next turn.
    next: Mutex<Instant>,
    interrupt: Interrupt,
}

impl Pacer {
    /// A pacer that gives `per_second` turns per second.
    pub(crate) fn new(per_second: NonZeroU32, interrupt: Interrupt) -> Self {
        Self { period: Duration::from_secs(1) / per_second.get(), next: Mutex::new(Instant::now()), interrupt }
    }

    /// Waits for a turn; returns `None` after Ctrl-C. Unused turns are not saved up.
    pub(crate) async fn turn(&self) -> Option<()> {
        self.turns(1).await
    }

    /// Waits for a turn, and takes the `count - 1` turns after it too; returns `None` after Ctrl-C.
    pub(crate) async fn turns(&self, count: u32) -> Option<()> {
        let at = {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            let at = (*next).max(Instant::now());
            *next = at + self.period * count;
            at
        };
        tokio::select! {
            biased;
            () = self.interrupt.wait() => None,
            // A timer has a resolution of a millisecond, so a turn that is due does not wait for one.
            () = async { if at > Instant::now() { sleep_until(at).await } } => Some(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;
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

    #[tokio::test(start_paused = true)]
    async fn turns_that_are_taken_together_delay_the_next_turn() {
        let stop = watch::Sender::new(false);
        let pacer = Pacer::new(NonZeroU32::new(100).unwrap(), Interrupt::by(stop.subscribe()));
        let start = Instant::now();
        pacer.turns(100).await.unwrap();
        assert_eq!(start.elapsed(), Duration::ZERO);
        pacer.turns(0).await.unwrap();
        pacer.turn().await.unwrap();
        assert_eq!(start.elapsed().as_millis(), 1_000);
    }

    #[tokio::test(start_paused = true)]
    async fn pacer_gives_more_than_a_thousand_turns_per_second_and_saves_none_up() {
        let stop = watch::Sender::new(false);
        let pacer = Pacer::new(NonZeroU32::new(20_000).unwrap(), Interrupt::by(stop.subscribe()));
        for _ in 0..2 {
            let start = Instant::now();
            join_all((0..10_000).map(|_| pacer.turn())).await;
            assert!((499..=502).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
            tokio::time::sleep(Duration::from_secs(60)).await;
        }
    }
}
