//! The trait that you implement: functions of a message and some rows.

use crate::error::HandleError;
use crate::message::BusMessage;
use crate::rows::{Changes, RowKey, Rows};

/// A consumer of messages.
///
/// Its functions make no calls: the message and the rows determine the changes. The rows and the position of the
/// message's aggregate are then written in one transaction.
pub trait Consumer: Send + Sync + 'static {
    /// The name of the consumer, a part of the keys of its rows. Stored format: it never changes.
    const NAME: &'static str;

    /// The number of attempts at a message before its aggregate stops.
    const MAX_ATTEMPTS: u32 = 5;

    /// The rows that [`handle`](Self::handle) reads. If one of them changes before the transaction, the message is
    /// handled again.
    ///
    /// # Errors
    ///
    /// When the message cannot be read.
    fn reads(&self, message: &BusMessage) -> Result<Vec<RowKey>, HandleError> {
        let _ = message;
        Ok(Vec::new())
    }

    /// The rows that the message changes.
    ///
    /// # Errors
    ///
    /// When the message cannot be applied: it is attempted [`MAX_ATTEMPTS`](Self::MAX_ATTEMPTS) times, and then stops its
    /// aggregate. Return no changes, not an error, for a message that the consumer does not need.
    fn handle(&self, message: &BusMessage, rows: &Rows<'_>) -> Result<Changes, HandleError>;
}
