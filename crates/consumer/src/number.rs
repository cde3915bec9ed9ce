//! The place of a message in the order of its aggregate.

use serde::Serialize;

/// The highest number of a message: there is a number after it.
pub(crate) const MAX_MESSAGE_SEQ: u64 = u64::MAX - 1;

/// The place of a message in the order of its aggregate: by epoch, then by number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Number {
    /// The epoch; 0 before the first message.
    pub epoch: u32,
    /// The number in the epoch.
    pub message_seq: u64,
}
