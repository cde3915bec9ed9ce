//! The errors: of the consumer's own code, and of its table.

use std::error::Error;

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};

/// Why a message cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct HandleError(String);

impl HandleError {
    /// An error with this reason.
    pub fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

impl From<serde_json::Error> for HandleError {
    fn from(error: serde_json::Error) -> Self {
        Self(error.to_string())
    }
}

/// An error of the table, by what the caller can do about it.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// DynamoDB throttles, cannot be reached or fails, or other writers of the same rows are always faster: the same
    /// request may succeed later.
    #[error("DynamoDB is not available, cannot {doing}")]
    Unavailable {
        /// The failed operation, as a verb phrase.
        doing: &'static str,
        /// The last error.
        source: Box<dyn Error + Send + Sync>,
    },
    /// DynamoDB rejects the request: a permission or the table is missing, or this code has a defect.
    #[error("DynamoDB rejects the request to {doing}")]
    InvalidRequest {
        /// The failed operation, as a verb phrase.
        doing: &'static str,
        /// DynamoDB's error.
        source: Box<dyn Error + Send + Sync>,
    },
    /// An item cannot be read by this code.
    #[error("the item {item} cannot be read")]
    Corrupt {
        /// Its key.
        item: String,
        /// What is wrong.
        source: Box<dyn Error + Send + Sync>,
    },
}

impl TableError {
    /// The error of a call, after the SDK's own retries.
    pub(crate) fn of_call<E>(doing: &'static str, error: SdkError<E>) -> Self
    where
        E: Error + ProvideErrorMetadata + Send + Sync + 'static,
    {
        let is_throttling = |code: &str| {
            let codes = ["ThrottlingException", "ProvisionedThroughputExceededException", "RequestLimitExceeded"];
            codes.contains(&code)
        };
        let is_transient = match &error {
            SdkError::TimeoutError(_) | SdkError::DispatchFailure(_) | SdkError::ResponseError(_) => true,
            SdkError::ServiceError(service) => {
                service.raw().status().is_server_error() || service.err().code().is_some_and(is_throttling)
            }
            _ => false,
        };
        let source = error.into_source().unwrap_or_else(|error| error.to_string().into());
        if is_transient { Self::Unavailable { doing, source } } else { Self::InvalidRequest { doing, source } }
    }
}
