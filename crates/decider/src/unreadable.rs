//! Stored events that the code cannot read.

use crate::panics::AggregatePanic;
use crate::record::RecordedEvent;

/// A stored event that the code cannot read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("event {seq_num} ({event_type} version {event_version}): {reason}")]
pub struct UnreadableEvent {
    /// Its number in the stream.
    pub seq_num: u64,
    /// Its stored name.
    pub event_type: String,
    /// Its stored version.
    pub event_version: u32,
    /// Why it cannot be read.
    pub kind: UnreadableKind,
    /// What is wrong with it.
    pub reason: String,
}

/// Why a stored event cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnreadableKind {
    /// A newer release wrote it: this code does not know its name or version. That release can read it.
    Newer,
    /// Its data does not fit its name and version, its number does not follow the event before it, or its upcast is
    /// missing: it needs repair.
    Corrupt,
    /// The aggregate's code panicked on it: the code needs a correction.
    Panicked,
}

pub(crate) fn unreadable(event: &RecordedEvent, kind: UnreadableKind, reason: String) -> UnreadableEvent {
    UnreadableEvent {
        seq_num: event.seq_num,
        event_type: event.event_type.clone(),
        event_version: event.event_version,
        kind,
        reason,
    }
}

pub(crate) fn panicked_on(event: &RecordedEvent) -> impl Fn(AggregatePanic) -> UnreadableEvent {
    move |panic| unreadable(event, UnreadableKind::Panicked, panic.to_string())
}
