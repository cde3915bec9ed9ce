//! Why a projection stops at an event, and the limits of a row's key.

use daybook_decider::panics::AggregatePanic;
use daybook_decider::{UnreadableEvent, UnreadableKind};

/// Maximum characters of a row's key.
pub const MAX_KEY: usize = 512;

/// Maximum bytes of a row's key in UTF-8. A sort key of DynamoDB has up to 1,024 bytes, and the query of a list adds up
/// to four to a key.
pub const MAX_KEY_BYTES: usize = 1020;

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
