//! The errors of the store, by what the caller can do about them.

use std::error::Error;

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use daybook_decider::{UnreadableEvent, UnreadableKind};
use daybook_table::{AggregateKey, UnreadableItem};
use tokio::time::error::Elapsed;

pub type Cause = Box<dyn Error + Send + Sync>;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// DynamoDB throttles, cannot be reached or fails: the same request may succeed in a moment.
    #[error("DynamoDB or KMS is not available, cannot {doing}")]
    Unavailable {
        /// The failed operation, as a verb phrase.
        doing: &'static str,
        source: Cause,
    },
    /// A newer release wrote an event that this code does not know. On that release the same request succeeds: while
    /// it is being deployed, a retry helps.
    #[error("{item} was written by a newer release")]
    Newer { item: String, source: Cause },
    /// The stored data cannot be read by this code: it needs repair.
    #[error("{item} is corrupt")]
    Corrupt { item: String, source: Cause },
    /// The aggregate's code panicked: the code needs a correction.
    #[error("the code of {item} panicked")]
    Panicked { item: String, source: Cause },
    /// DynamoDB rejects the request itself: a permission, table or index is missing, or this code has a defect.
    #[error("the request to {doing} is rejected")]
    InvalidRequest { doing: &'static str, source: Cause },
}

impl StoreError {
    /// The error of a call, after the SDK's own retries.
    pub fn of_call<E>(doing: &'static str, error: SdkError<E>) -> Self
    where
        E: Error + ProvideErrorMetadata + Send + Sync + 'static,
    {
        let is_transient = match &error {
            SdkError::TimeoutError(_) | SdkError::DispatchFailure(_) | SdkError::ResponseError(_) => true,
            SdkError::ServiceError(service) => {
                service.raw().status().is_server_error() || service.err().code().is_some_and(is_passing)
            }
            _ => false,
        };
        let is_missing_table = error.code() == Some("ResourceNotFoundException");
        let mut source = cause(error);
        if is_missing_table {
            source = MissingTable(source).into();
        }
        if is_transient { Self::Unavailable { doing, source } } else { Self::InvalidRequest { doing, source } }
    }

    /// Whether the table does not exist, in this region and at this endpoint.
    pub fn is_missing_table(&self) -> bool {
        matches!(self, Self::InvalidRequest { source, .. } if source.is::<MissingTable>())
    }

    pub(crate) fn corrupt(item: impl Into<String>, source: impl Into<Cause>) -> Self {
        Self::Corrupt { item: item.into(), source: source.into() }
    }

    pub(crate) fn timed_out(doing: &'static str, elapsed: Elapsed) -> Self {
        Self::Unavailable { doing, source: elapsed.into() }
    }

    pub(crate) fn unreadable(key: &AggregateKey, event: UnreadableEvent) -> Self {
        let item = key.to_string();
        match event.kind {
            UnreadableKind::Newer => Self::Newer { item, source: event.into() },
            UnreadableKind::Corrupt => Self::Corrupt { item, source: event.into() },
            UnreadableKind::Panicked => Self::Panicked { item, source: event.into() },
        }
    }
}

impl From<UnreadableItem> for StoreError {
    fn from(item: UnreadableItem) -> Self {
        Self::Corrupt { item: item.item.clone(), source: item.into() }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the table does not exist")]
struct MissingTable(#[source] Cause);

/// The output of a conditional write; `None` when its condition does not hold.
pub fn if_condition_holds<T, E>(doing: &'static str, result: Result<T, SdkError<E>>) -> Result<Option<T>, StoreError>
where
    E: Error + ProvideErrorMetadata + Send + Sync + 'static,
{
    match result {
        Ok(output) => Ok(Some(output)),
        Err(error) if error.code() == Some("ConditionalCheckFailedException") => Ok(None),
        Err(error) => Err(StoreError::of_call(doing, error)),
    }
}

/// The cause of an SDK error. The error itself holds a whole HTTP response and is not `Sync`.
pub(crate) fn cause<E: Error + Send + Sync + 'static>(error: SdkError<E>) -> Cause {
    error.into_source().unwrap_or_else(|error| error.to_string().into())
}

/// Whether the same request may succeed in a moment. A write alone conflicts with a transaction that is under way on its row.
fn is_passing(code: &str) -> bool {
    is_throttling(code) || code == "TransactionConflictException"
}

pub(crate) fn is_throttling(code: &str) -> bool {
    matches!(
        code,
        "ThrottlingException" | "ProvisionedThroughputExceededException" | "RequestLimitExceeded" | "ThrottlingError"
    )
}
