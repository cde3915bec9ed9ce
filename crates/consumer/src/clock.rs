//! The time.

use std::env;

use jiff::{SignedDuration, Timestamp};

/// The time, for rows that contain one. It is that of the machine; in the local stack that of the stack, whose clock can be moved
/// forward.
pub fn now() -> Timestamp {
    let ahead = env::var("CLOCK_AHEAD_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    Timestamp::now() + SignedDuration::from_secs(ahead.unwrap_or_default())
}
