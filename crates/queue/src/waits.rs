//! The pauses between the attempts of a call.

use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub struct Waits {
    /// The maximum of the first wait; the maximum doubles with each later wait.
    pub first: Duration,
    pub longest: Duration,
}

impl Waits {
    /// The wait after this many attempts, with full jitter: anything from zero to the maximum.
    pub fn after(&self, attempts: u32) -> Duration {
        self.limit(attempts).mul_f64(fastrand::f64())
    }

    /// The maximum of the wait after this many attempts.
    pub fn limit(&self, attempts: u32) -> Duration {
        let doublings = attempts.saturating_sub(1);
        self.first.saturating_mul(2_u32.saturating_pow(doublings)).min(self.longest)
    }
}

impl Default for Waits {
    fn default() -> Self {
        Self { first: Duration::from_millis(100), longest: Duration::from_secs(5) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_limit() {
        let waits = Waits::default();
        let limits: Vec<_> = (1..=8).map(|attempts| waits.limit(attempts).as_millis()).collect();
        assert_eq!(limits, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(waits.limit(u32::MAX), waits.longest);
        assert!((0..1000).all(|_| waits.after(3) <= waits.limit(3)));
    }
}
