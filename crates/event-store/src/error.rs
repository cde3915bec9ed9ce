//! What can go wrong, by what the caller does next.

use std::error::Error;

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use daybook_decider::{UnreadableEvent, UnreadableKind};
use daybook_table::UnreadableItem;

/// A fault with its cause.
pub type Cause = Box<dyn Error + Send + Sync>;

/// Why the store cannot answer.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Throttled, unreachable or failing: the same request may succeed in a moment.
    #[error("DynamoDB is not available to {doing}")]
    Unavailable {
        /// What was being done.
        doing: &'static str,
        /// The last fault.
        source: Cause,
    },
    /// A newer release than this one wrote an event that this code does not know. Where that release runs, the same
    /// request succeeds: while it is being deployed, trying again helps.
    #[error("{item} was written by a newer release")]
    Newer {
        /// Which aggregate.
        item: String,
        /// The event.
        source: Cause,
    },
    /// What is stored cannot be read by this code: somebody has to look.
    #[error("{item} is corrupt")]
    Corrupt {
        /// Which aggregate or item.
        item: String,
        /// What is wrong.
        source: Cause,
    },
    /// DynamoDB refuses the request itself: a missing permission, table or index, or a fault in this code.
    #[error("DynamoDB refuses to {doing}")]
    Refused {
        /// What was being done.
        doing: &'static str,
        /// Its answer.
        source: Cause,
    },
}

impl StoreError {
    /// The fault of a read, after the SDK's own retries.
    pub(crate) fn of_call<E>(doing: &'static str, fault: SdkError<E>) -> Self
    where
        E: Error + ProvideErrorMetadata + Send + Sync + 'static,
    {
        let passing = match &fault {
            SdkError::TimeoutError(_) | SdkError::DispatchFailure(_) | SdkError::ResponseError(_) => true,
            SdkError::ServiceError(answer) => {
                answer.raw().status().is_server_error() || answer.err().code().is_some_and(is_throttling)
            }
            _ => false,
        };
        let source = cause(fault);
        if passing { Self::Unavailable { doing, source } } else { Self::Refused { doing, source } }
    }

    pub(crate) fn unreadable(aggregate: impl ToString, event: UnreadableEvent) -> Self {
        let item = aggregate.to_string();
        match event.kind {
            UnreadableKind::Newer => Self::Newer { item, source: event.into() },
            UnreadableKind::Corrupt => Self::Corrupt { item, source: event.into() },
        }
    }
}

impl From<UnreadableItem> for StoreError {
    fn from(item: UnreadableItem) -> Self {
        Self::Corrupt { item: item.item.clone(), source: item.into() }
    }
}

/// What is behind an error of the SDK, which as a whole holds an answer and is not `Sync`.
pub(crate) fn cause<E: Error + Send + Sync + 'static>(error: SdkError<E>) -> Cause {
    error.into_source().unwrap_or_else(|error| error.to_string().into())
}

/// Whether an error code says "slower".
pub(crate) fn is_throttling(code: &str) -> bool {
    matches!(
        code,
        "ThrottlingException" | "ProvisionedThroughputExceededException" | "RequestLimitExceeded" | "ThrottlingError"
    )
}
