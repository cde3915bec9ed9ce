//! The meaning of a failed attempt: whether it was written, and whether another attempt may help.

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::CancellationReason;
use daybook_table::{AggregateKey, Metadata};

use super::error::AppendError;
use crate::error::{Cause, StoreError, cause, is_throttling};
use crate::idempotency;

/// The meaning of a failed attempt.
pub(super) enum AttemptError {
    /// Final: another attempt changes nothing.
    Final(AppendError),
    /// Nothing was written, and another attempt may help.
    NotWritten(Cause),
    /// It may have been written.
    Unknown(Cause),
}

impl AttemptError {
    pub(super) fn of(key: &AggregateKey, stores_response: bool, error: SdkError<TransactWriteItemsError>) -> Self {
        let invalid = |source| Self::Final(StoreError::InvalidRequest { doing: "append", source }.into());
        let meaning: fn(Cause) -> Self = match &error {
            SdkError::ConstructionFailure(_) => invalid,
            SdkError::ServiceError(service) => match service.err() {
                TransactWriteItemsError::TransactionCanceledException(cancelled) => {
                    match Self::of_reasons(key, stores_response, cancelled.cancellation_reasons()) {
                        Some(known) => return known,
                        None => invalid,
                    }
                }
                // This append's own earlier attempt is still in progress.
                TransactWriteItemsError::TransactionInProgressException(_) => Self::Unknown,
                error if error.code().is_some_and(is_throttling) => Self::NotWritten,
                _ if service.raw().status().is_server_error() => Self::Unknown,
                _ => invalid,
            },
            _ => Self::Unknown,
        };
        meaning(cause(error))
    }

    /// Reads the cancellation reasons item by item. The first item is the metadata, and only its condition is about
    /// versions. A stored response is the last item, and settles the request even if the version has changed since.
    fn of_reasons(key: &AggregateKey, stores_response: bool, reasons: &[CancellationReason]) -> Option<Self> {
        let failed = |code: &str| reasons.iter().position(|reason| reason.code() == Some(code));
        let response = reasons.last().filter(|_| stores_response);
        let used = response.filter(|reason| reason.code() == Some("ConditionalCheckFailed"));
        if let Some(item) = used.and_then(CancellationReason::item) {
            return Some(Self::Final(match idempotency::read(key, item.clone()) {
                Ok((stored, _)) => AppendError::KeyUsed(stored),
                Err(error) => error.into(),
            }));
        }
        // The same request may be committing elsewhere: then its response is about to be stored.
        if response.is_some_and(|reason| reason.code() == Some("TransactionConflict")) {
            return Some(Self::NotWritten("TransactionConflict".into()));
        }
        if failed("ConditionalCheckFailed") == Some(0) {
            return Some(Self::Final(conflict(key, &reasons[0])));
        }
        // Checked before the other rows: while another transaction commits, its rows may exist already although it
        // still holds the metadata.
        let transient = ["TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"];
        if let Some(code) = transient.into_iter().find(|code| failed(code).is_some()) {
            return Some(Self::NotWritten(code.into()));
        }
        // The metadata is at the expected version, but a row that it does not count exists.
        let row = failed("ConditionalCheckFailed")?;
        let source = format!("row {row} of the append exists, but the metadata is at the expected version").into();
        Some(Self::Final(StoreError::Corrupt { item: key.to_string(), source }.into()))
    }
}

/// The conflict, with the version that the failed condition returned; 0 when there is no metadata.
fn conflict(key: &AggregateKey, reason: &CancellationReason) -> AppendError {
    let Some(item) = reason.item().filter(|item| !item.is_empty()) else {
        return AppendError::Conflict { actual: 0 };
    };
    match serde_dynamo::from_item::<_, Metadata>(item.clone()) {
        Ok(metadata) => AppendError::Conflict { actual: metadata.current_seq_num },
        Err(error) => StoreError::Corrupt { item: format!("the metadata of {key}"), source: error.into() }.into(),
    }
}
