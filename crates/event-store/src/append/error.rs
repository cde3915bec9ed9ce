//! The errors of an append.

use crate::error::{Cause, StoreError};
use crate::limits::TooLarge;
use crate::stored_response::StoredResponse;

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

/// The errors of a transaction that appends the decisions of one or several requests.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    /// Idempotency keys were used before: for each response that was to be stored, the one that is stored.
    #[error("an idempotency key was used before")]
    KeysUsed(Vec<Option<StoredResponse>>),
    /// An error of all decisions.
    #[error(transparent)]
    Append(AppendError),
}

impl From<AppendError> for SendError {
    fn from(error: AppendError) -> Self {
        Self::Append(error)
    }
}

impl From<StoreError> for SendError {
    fn from(error: StoreError) -> Self {
        Self::Append(error.into())
    }
}

impl From<SendError> for AppendError {
    /// The error of a transaction of one decision.
    fn from(error: SendError) -> Self {
        match error {
            SendError::KeysUsed(stored) => match stored.into_iter().flatten().next() {
                Some(stored) => Self::KeyUsed(stored),
                None => Self::Busy,
            },
            SendError::Append(error) => error,
        }
    }
}
