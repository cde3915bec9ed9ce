//! Sample values: the id and the time of all examples.

use jiff::Timestamp;
use ulid::Ulid;

/// The id in all examples.
pub const ID: &str = "123";

/// The time of all examples: 2026-01-01T00:00:00Z.
pub(crate) const NOW: Timestamp = Timestamp::constant(1_767_225_600, 0);

/// The time up to which the feeds of the examples are settled: a minute later.
pub(crate) const SETTLED: Timestamp = Timestamp::constant(1_767_225_660, 0);

/// A ULID at the time of the examples: the same at every run.
pub(crate) fn ulid(random: u128) -> Ulid {
    Ulid::from_parts(u64::try_from(NOW.as_millisecond()).unwrap_or_default(), random)
}
