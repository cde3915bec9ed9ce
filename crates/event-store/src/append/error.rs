//! Why nothing was appended.

use crate::error::StoreError;
use crate::idempotency::StoredResponse;
use crate::limits::TooLarge;

/// Why nothing was appended.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// Another writer was there first: load and decide again.
    #[error("the aggregate is at version {actual}")]
    Conflict {
        /// The version that it has.
        actual: u64,
    },
    /// The idempotency key was used before, with this response.
    #[error("the idempotency key was used before")]
    KeyUsed(StoredResponse),
    /// DynamoDB would not take it.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// Anything else.
    #[error(transparent)]
    Store(#[from] StoreError),
}
