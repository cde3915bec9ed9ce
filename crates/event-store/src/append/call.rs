//! The call that sends the transaction, and the meaning of its failure: whether it was written, and whether another
//! attempt may help.

use aws_sdk_dynamodb::config::Config;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{CancellationReason, ConsumedCapacity, ReturnConsumedCapacity, TransactWriteItem};
use daybook_table::{AggregateKey, Metadata};
use tokio::time::timeout;
use tracing::Span;

use super::error::AppendError;
use crate::error::{Cause, StoreError, cause, is_throttling};
use crate::event_stream::EventStream;
use crate::idempotency;
use crate::settle::CALL_TIMEOUT;

/// The field of a span for the write units of its last append.
const WRITE_UNITS: &str = "daybook.write_units";

impl EventStream<'_> {
    /// Sends the transaction once: another attempt is another decision, with its own time.
    pub(crate) async fn send(
        &self,
        transaction: Vec<TransactWriteItem>,
        stores_response: bool,
    ) -> Result<(), AppendError> {
        let once = Config::builder().retry_config(RetryConfig::disabled());
        let call = self.store.client.transact_write_items().set_transact_items(Some(transaction));
        // Only the span of an append shows the units. The span of Lambda's runtime, in which every request is, does not.
        let span = Span::current();
        let units = span.has_field(WRITE_UNITS).then_some(ReturnConsumedCapacity::Total);
        let call = call.set_return_consumed_capacity(units);
        match timeout(CALL_TIMEOUT, call.customize().config_override(once).send()).await {
            Ok(Ok(written)) => {
                let units = written.consumed_capacity().iter().filter_map(ConsumedCapacity::capacity_units);
                span.record(WRITE_UNITS, units.sum::<f64>());
                Ok(())
            }
            Ok(Err(error)) => Err(append_error(self.key, stores_response, error)),
            Err(elapsed) => Err(AppendError::Unknown(elapsed.into())),
        }
    }
}

fn append_error(key: &AggregateKey, stores_response: bool, error: SdkError<TransactWriteItemsError>) -> AppendError {
    let invalid = |source| StoreError::InvalidRequest { doing: "append", source }.into();
    let meaning: fn(Cause) -> AppendError = match &error {
        SdkError::ConstructionFailure(_) => invalid,
        SdkError::ServiceError(service) => match service.err() {
            TransactWriteItemsError::TransactionCanceledException(cancelled) => {
                match of_reasons(key, stores_response, cancelled.cancellation_reasons()) {
                    Some(known) => return known,
                    None => invalid,
                }
            }
            // The SDK gives every call its own token, so this is a call that the network has repeated.
            TransactWriteItemsError::TransactionInProgressException(_) => AppendError::Unknown,
            error if error.code().is_some_and(is_throttling) => AppendError::NotWritten,
            _ if service.raw().status().is_server_error() => AppendError::Unknown,
            _ => invalid,
        },
        _ => AppendError::Unknown,
    };
    meaning(cause(error))
}

/// Reads the cancellation reasons item by item. The first item is the metadata, and only its condition is about
/// versions. A stored response is the last item, and is the result even if the version has changed since.
fn of_reasons(key: &AggregateKey, stores_response: bool, reasons: &[CancellationReason]) -> Option<AppendError> {
    let failed = |code: &str| reasons.iter().position(|reason| reason.code() == Some(code));
    let response = reasons.last().filter(|_| stores_response);
    let used = response.filter(|reason| reason.code() == Some("ConditionalCheckFailed"));
    if let Some(item) = used.and_then(CancellationReason::item) {
        return Some(match idempotency::read(key, item.clone()) {
            Ok((stored, _)) => AppendError::KeyUsed(stored),
            Err(error) => error.into(),
        });
    }
    // The same request may be committing elsewhere: then its response is about to be stored.
    if response.is_some_and(|reason| reason.code() == Some("TransactionConflict")) {
        return Some(AppendError::Busy);
    }
    if failed("ConditionalCheckFailed") == Some(0) {
        return Some(conflict(key, &reasons[0]));
    }
    // Checked before the other rows: while another transaction commits, its rows may exist already although it still
    // holds the metadata.
    if failed("TransactionConflict").is_some() {
        return Some(AppendError::Busy);
    }
    let throttled = ["ThrottlingError", "ProvisionedThroughputExceeded"];
    if let Some(code) = throttled.into_iter().find(|code| failed(code).is_some()) {
        return Some(AppendError::NotWritten(code.into()));
    }
    // The metadata is at the expected version, but a row that it does not count exists.
    let row = failed("ConditionalCheckFailed")?;
    let source = format!("row {row} of the append exists, but the metadata is at the expected version").into();
    Some(StoreError::Corrupt { item: key.to_string(), source }.into())
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
