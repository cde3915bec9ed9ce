//! What can go wrong, by what the caller does next.

use std::error::Error;

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use daybook_decider::{UnreadableEvent, UnreadableKind};
use daybook_table::{AggregateKey, UnreadableItem};

/// An error of any kind, as the cause of another.
pub type Cause = Box<dyn Error + Send + Sync>;

/// Why the store cannot answer.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Throttled, unreachable or failing: the same request may succeed in a moment.
    #[error("DynamoDB is not available to {doing}")]
    Unavailable {
        /// What was being done.
        doing: &'static str,
        /// The last error.
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
    /// What is stored cannot be read by this code: somebody has to repair it.
    #[error("{item} is corrupt")]
    Corrupt {
        /// Which aggregate or item.
        item: String,
        /// What is wrong.
        source: Cause,
    },
    /// DynamoDB refuses the request itself: a missing permission, table or index, or a defect of this code.
    #[error("DynamoDB refuses to {doing}")]
    InvalidRequest {
        /// What was being done.
        doing: &'static str,
        /// Its answer.
        source: Cause,
    },
}

impl StoreError {
    /// The error of a call, after the SDK's own retries.
    pub(crate) fn of_call<E>(doing: &'static str, error: SdkError<E>) -> Self
    where
        E: Error + ProvideErrorMetadata + Send + Sync + 'static,
    {
        let is_transient = match &error {
            SdkError::TimeoutError(_) | SdkError::DispatchFailure(_) | SdkError::ResponseError(_) => true,
            SdkError::ServiceError(service) => {
                service.raw().status().is_server_error() || service.err().code().is_some_and(is_throttling)
            }
            _ => false,
        };
        let source = cause(error);
        if is_transient { Self::Unavailable { doing, source } } else { Self::InvalidRequest { doing, source } }
    }

    pub(crate) fn unreadable(key: &AggregateKey, event: UnreadableEvent) -> Self {
        let item = key.to_string();
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

/// The output of a conditional write; none where its condition does not hold.
pub(crate) fn if_condition_holds<T, E>(
    doing: &'static str,
    result: Result<T, SdkError<E>>,
) -> Result<Option<T>, StoreError>
where
    E: Error + ProvideErrorMetadata + Send + Sync + 'static,
{
    match result {
        Ok(output) => Ok(Some(output)),
        Err(error) if error.code() == Some("ConditionalCheckFailedException") => Ok(None),
        Err(error) => Err(StoreError::of_call(doing, error)),
    }
}

/// The cause of an error of the SDK, which itself holds a whole HTTP response and is not `Sync`.
pub(crate) fn cause<E: Error + Send + Sync + 'static>(error: SdkError<E>) -> Cause {
    error.into_source().unwrap_or_else(|error| error.to_string().into())
}

/// Whether an error code means that requests come too fast.
pub(crate) fn is_throttling(code: &str) -> bool {
    matches!(
        code,
        "ThrottlingException" | "ProvisionedThroughputExceededException" | "RequestLimitExceeded" | "ThrottlingError"
    )
}
