//! When requests may start, and when publishing ends.

use std::num::NonZeroU32;
use std::time::Duration;

use tokio::time::Instant;

/// The limits of publishing. Without any, it ends when nothing more can be settled.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    /// Publishing ends then. What is in flight is abandoned, and counts as unsettled though it may have arrived.
    pub(crate) cutoff: Option<Instant>,
    /// Publishing ends when the bus has answered with nothing but failures for so long.
    pub(crate) patience: Option<Duration>,
    /// Maximum messages per second, over all batches that are published with these limits.
    pub(crate) rate: Option<NonZeroU32>,
    /// No request starts before, because of the rate.
    pub(crate) next_request_at: Option<Instant>,
}

impl Limits {
    /// Puts off the next request by the time that this one takes at the maximum rate.
    pub(crate) fn request_started(&mut self, entries: usize) {
        if let Some(rate) = self.rate {
            let time = Duration::from_secs(1) * u32::try_from(entries).unwrap_or(u32::MAX) / rate.get();
            let now = Instant::now();
            self.next_request_at = Some(self.next_request_at.map_or(now, |at| at.max(now)) + time);
        }
    }
}
