//! A moment by two clocks.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

/// A moment by the monotonic clock, which may stand still while Lambda has frozen the process, and by the wall clock, which may be
/// moved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment(Instant, SystemTime);

impl Moment {
    pub(crate) fn now() -> Self {
        Self(Instant::now(), SystemTime::now())
    }

    /// Whether it is at most this long ago by both clocks.
    pub(crate) fn is_within(&self, limit: Duration) -> bool {
        self.0.elapsed() <= limit && self.1.elapsed().is_ok_and(|elapsed| elapsed <= limit)
    }
}
