//! Random numbers from a seed.

use std::ops::RangeInclusive;
use std::time::Duration;

/// A random number generator. Each concern of a schedule has its own, so that an additional draw in one shifts no
/// other.
#[derive(Clone, Debug)]
pub(crate) struct Dice(fastrand::Rng);

impl Dice {
    /// The generator of one concern of a schedule.
    pub(crate) fn new(seed: u64, concern: &str) -> Self {
        // FNV-1a, so that similar seeds and names have very different results.
        let bytes = seed.to_le_bytes().into_iter().chain(concern.bytes());
        let mixed =
            bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        Self(fastrand::Rng::with_seed(mixed))
    }

    /// Returns `true` with this probability.
    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        self.0.f64() < probability
    }

    pub(crate) fn number(&mut self, range: RangeInclusive<u64>) -> u64 {
        self.0.u64(range)
    }

    pub(crate) fn size(&mut self, range: RangeInclusive<usize>) -> usize {
        self.0.usize(range)
    }

    /// An amount of money.
    pub(crate) fn amount(&mut self, range: RangeInclusive<i64>) -> i64 {
        self.0.i64(range)
    }

    pub(crate) fn bits(&mut self) -> u128 {
        self.0.u128(..)
    }

    pub(crate) fn milliseconds(&mut self, range: RangeInclusive<u64>) -> Duration {
        Duration::from_millis(self.0.u64(range))
    }

    /// One of several, with equal probability.
    pub(crate) fn one_of<T: Clone>(&mut self, several: &[T]) -> T {
        several[self.0.usize(..several.len())].clone()
    }

    /// Shuffles the items.
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        self.0.shuffle(items);
    }
}
