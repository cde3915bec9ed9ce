//! The errors of an append.

use crate::error::{Cause, StoreError};
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
    /// Another writer's transaction on this aggregate is in progress. Nothing was written: load and decide again.
    #[error("another transaction on the aggregate is in progress")]
    Busy,
    /// The idempotency key was used before, with this response.
    #[error("the idempotency key was used before")]
    KeyUsed(StoredResponse),
    /// The append exceeds a limit of DynamoDB.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// Nothing was written, for example because DynamoDB throttles: wait and decide again.
    #[error("nothing was written")]
    NotWritten(#[source] Cause),
    /// It may have been written: the response was lost or came too late, or DynamoDB failed.
    #[error("the outcome of the append is unknown")]
    Unknown(#[source] Cause),
    /// Anything else.
    #[error(transparent)]
    Store(#[from] StoreError),
}
