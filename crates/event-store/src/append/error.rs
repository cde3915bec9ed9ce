//! The errors of an append.

use daybook_decider::{AggregateKey, Claim, Need};

use crate::error::{Cause, StoreError};
use crate::limits::TooLarge;
use crate::stored_response::StoredResponse;

#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// Another writer was faster: load and decide again.
    #[error("the aggregate is at version {actual}")]
    Conflict { actual: u64 },
    /// Another writer's transaction on this aggregate is in progress. Nothing was written: load and decide again.
    #[error("another transaction on the aggregate is in progress")]
    Busy,
    /// Other writers were faster on other aggregates that the decision involves, or are writing: read them and decide again.
    #[error("other writers were faster on other aggregates")]
    Raced(Vec<Need>),
    /// The row that is required was deleted, set again or marked.
    #[error("the row for which it was decided has changed")]
    RowChanged,
    /// Idempotency keys were used before: for each response that was to be stored, the one that is stored.
    #[error("an idempotency key was used before")]
    KeysUsed(Vec<Option<StoredResponse>>),
    /// Another aggregate has a claim that was to be taken. The metadata is at the expected version.
    #[error("{holder} has the claim {}", claim.name())]
    ClaimTaken { claim: Claim, holder: AggregateKey },
    /// Another aggregate has these claims, which were to be released; or it has them no longer.
    #[error("claims to be released belong to another aggregate, or do so no longer")]
    NotReleased(Vec<Claim>),
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
