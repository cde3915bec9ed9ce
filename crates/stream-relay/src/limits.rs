//! The limits on when requests may start and when publishing ends.

use std::num::NonZeroU32;
use std::time::Duration;

use tokio::time::Instant;

/// The limits of publishing. Without limits, it ends when nothing more can be settled.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    /// The time at which publishing ends. Calls in flight are abandoned; their messages count as unsettled, although
    /// they may have arrived.
    pub(crate) cutoff: Option<Instant>,
    /// Publishing ends when the bus has returned nothing but failures for this long.
    pub(crate) patience: Option<Duration>,
    /// Maximum concurrent requests; `None` for those of the relay.
    pub(crate) max_requests: Option<usize>,
    /// Maximum messages per second, over all batches that are published with these limits.
    pub(crate) rate: Option<NonZeroU32>,
    /// The time before which no request starts, because of the rate.
    pub(crate) next_request_at: Option<Instant>,
}

impl Limits {
    /// Delays the next request by the time that this one takes at the maximum rate.
    pub(crate) fn request_started(&mut self, entries: usize) {
        if let Some(rate) = self.rate {
            let time = Duration::from_secs(1) * u32::try_from(entries).unwrap_or(u32::MAX) / rate.get();
            let now = Instant::now();
            self.next_request_at = Some(self.next_request_at.map_or(now, |at| at.max(now)) + time);
        }
    }
}
