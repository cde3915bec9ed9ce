//! The errors of an append.

use crate::error::StoreError;
use crate::idempotency::StoredResponse;
use crate::limits::TooLarge;

/// The errors of an append.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// Another writer was faster: load and decide again.
    #[error("the aggregate is at version {actual}")]
    Conflict {
        /// The version of the aggregate.
        actual: u64,
    },
    /// The idempotency key was used before, with this response.
    #[error("the idempotency key was used before")]
    KeyUsed(StoredResponse),
    /// The append exceeds a limit of DynamoDB.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// Anything else.
    #[error(transparent)]
    Store(#[from] StoreError),
}
