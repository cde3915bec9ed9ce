//! Why a projection stops at an event.

use daybook_decider::panics::AggregatePanic;
use daybook_decider::{UnreadableEvent, UnreadableKind};

use crate::key::{MAX_KEY, MAX_KEY_BYTES};

/// Why an event of an aggregate cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stopped {
    /// The event cannot be read.
    #[error(transparent)]
    Unreadable(UnreadableEvent),
    /// The projection's code panicked.
    #[error(transparent)]
    Panicked(AggregatePanic),
    /// The projection's state of the aggregate cannot be read or written.
    #[error("the state of the projection cannot be read or written: {0}; was it changed without a new VERSION?")]
    State(String),
    /// A key that no row can have.
    #[error(
        "a key has {length} characters in {bytes} bytes, expected 1 to {MAX_KEY} characters in up to {MAX_KEY_BYTES} bytes"
    )]
    BadKey {
        /// The number of its characters.
        length: usize,
        /// The number of its bytes in UTF-8.
        bytes: usize,
    },
}

impl Stopped {
    /// Whether only a newer release can read the event.
    pub fn is_newer(&self) -> bool {
        matches!(self, Self::Unreadable(event) if event.kind == UnreadableKind::Newer)
    }
}
