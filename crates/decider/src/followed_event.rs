//! An event for code that follows the aggregates of another type: a projection or a process.

use jiff::Timestamp;

use crate::record::Meta;

/// An event, in the form that the aggregate's code writes today, with its origin.
#[derive(Clone, Copy, Debug)]
pub struct FollowedEvent<'a, E> {
    /// The id of the aggregate.
    pub aggregate_id: &'a str,
    /// The number of the event in the aggregate's stream.
    pub seq_num: u64,
    /// When the event was decided.
    pub occurred_at: Timestamp,
    /// The origin of the command that caused the event.
    pub meta: &'a Meta,
    /// The event.
    pub event: &'a E,
}
