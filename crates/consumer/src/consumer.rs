//! What you write: a function of a message and some rows.

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

    /// The rows that [`handle`](Self::handle) reads. They are the same at the time of the transaction, or the message
    /// is handled again.
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
    /// aggregate. A message that the consumer does not need is not an error, but has no changes.
    fn handle(&self, message: &BusMessage, rows: &Rows<'_>) -> Result<Changes, HandleError>;
}
