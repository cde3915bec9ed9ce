//! The append: one transaction that updates the metadata, puts the events, and puts the messages into the outbox.
//!
//! This file sends the transaction and classifies its failure: whether it was written, and whether another attempt may help.
//!
//! In reading order: `transaction`: the items; `claims`: those of unique values; `deadlines`: those of
//! deadlines; `batch`: the items of several decisions; `joint`: those of several aggregates; `import`: appends of events that
//! exist already.

mod batch;
mod claims;
mod deadlines;
mod import;
mod joint;
mod transaction;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{CancellationReason, ConsumedCapacity, ReturnConsumedCapacity};
use daybook_decider::{AggregateKey, Claim, Need};
use daybook_table::Metadata;
use tokio::time::{Instant, timeout};
use tracing::Span;

pub(crate) use self::batch::{AppendBatch, FirstEvent};
pub(crate) use self::claims::{ClaimHolders, read_claim};
pub(crate) use self::joint::NotBuilt;
pub use self::transaction::{ImportWrite, NewEvents};
use crate::error::{Cause, StoreError, cause, is_throttling};
use crate::idempotency::{self, StoredResponse};
use crate::limits::TooLarge;
use crate::settle::CALL_TIMEOUT;
use crate::subject_keys::Sealing;

/// The field of a span for the write units of its last append.
const WRITE_UNITS: &str = "daybook.write_units";

/// The call of an append after one version. It owns what it needs, so that several requests can wait for it.
#[derive(Clone, Debug)]
pub(crate) struct AppendCall {
    /// It sends each call once.
    client: Client,
    table_name: String,
    key: AggregateKey,
    before: u64,
    pub(crate) send_until: Instant,
    sealing: Sealing,
}

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
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// Nothing was written, for example because DynamoDB throttles: wait and decide again.
    #[error("nothing was written")]
    NotWritten(#[source] Cause),
    /// It may have been written: the response was lost or came too late, or DynamoDB failed.
    #[error("the outcome of the append is unknown")]
    Unknown(#[source] Cause),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl AppendCall {
    /// Sends the transaction once: another attempt is another decision, with its own time.
    pub(crate) async fn send(self, mut batch: AppendBatch) -> Result<(), AppendError> {
        if Instant::now() > self.send_until {
            return Err(AppendError::NotWritten("the decision was too old to be sent".into()));
        }
        let (responses, mut in_flight) = (batch.responses(), std::mem::take(&mut batch.in_flight));
        let others: Vec<_> = batch.others.iter().map(|(other, _)| other.clone()).collect();
        let claims: Vec<_> = batch.claims.iter().map(|change| (change.claim.clone(), change.takes)).collect();
        let (key, sealing) = (self.key.clone(), self.sealing.clone());
        let items = Items { requires_row: batch.required.is_some(), others, claims, responses };
        let call = self.client.transact_write_items().set_transact_items(Some(self.transaction(batch)));
        // Only the span of an append shows the units. The span of Lambda's runtime, in which every request is, does not.
        // If several requests share the append, the span of the one that sends it shows the units of all.
        let span = Span::current();
        let units = span.has_field(WRITE_UNITS).then_some(ReturnConsumedCapacity::Total);
        let call = call.set_return_consumed_capacity(units);
        in_flight.is_in_doubt = true;
        let result = match timeout(CALL_TIMEOUT, call.send()).await {
            Ok(Ok(written)) => {
                let units = written.consumed_capacity().iter().filter_map(ConsumedCapacity::capacity_units);
                span.record(WRITE_UNITS, units.sum::<f64>());
                Ok(())
            }
            Ok(Err(error)) => match send_error(&key, &items, error) {
                AppendError::KeysUsed(stored) => opened(stored, &sealing, &key).await,
                error => Err(error),
            },
            Err(elapsed) => Err(AppendError::Unknown(elapsed.into())),
        };
        in_flight.is_in_doubt = matches!(result, Err(AppendError::Unknown(_)));
        result
    }
}

/// The error of idempotency keys that were used, with the stored responses opened.
async fn opened(
    mut stored: Vec<Option<StoredResponse>>,
    sealing: &Sealing,
    key: &AggregateKey,
) -> Result<(), AppendError> {
    for stored in stored.iter_mut().flatten() {
        stored.open(sealing, key).await?;
    }
    Err(AppendError::KeysUsed(stored))
}

/// The items of a transaction, in their order: the metadata, the row that it requires, the other aggregates that it involves, rows,
/// deadlines, claims and responses.
struct Items {
    requires_row: bool,
    others: Vec<Need>,
    /// With `true`, the append takes the claim; with `false`, it releases it.
    claims: Vec<(Claim, bool)>,
    responses: usize,
}

fn send_error(key: &AggregateKey, items: &Items, error: SdkError<TransactWriteItemsError>) -> AppendError {
    let invalid = |source| StoreError::InvalidRequest { doing: "append", source }.into();
    let meaning: fn(Cause) -> AppendError = match &error {
        SdkError::ConstructionFailure(_) => invalid,
        SdkError::ServiceError(service) => match service.err() {
            TransactWriteItemsError::TransactionCanceledException(cancelled) => {
                match of_reasons(key, items, cancelled.cancellation_reasons()) {
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
/// versions of its aggregate. Stored responses are the last items, and are the result even if the version has changed since.
fn of_reasons(key: &AggregateKey, items: &Items, reasons: &[CancellationReason]) -> Option<AppendError> {
    let Items { requires_row, others, claims, responses } = items;
    let failed = |code: &str| reasons.iter().position(|reason| reason.code() == Some(code));
    let (before_responses, of_responses) = reasons.split_at(reasons.len().saturating_sub(*responses));
    match of_responses.iter().map(|reason| stored_response(key, reason)).collect::<Result<Vec<_>, _>>() {
        Ok(stored) if stored.iter().all(Option::is_none) => {}
        Ok(stored) => return Some(AppendError::KeysUsed(stored)),
        Err(error) => return Some(error.into()),
    }
    // The same request may be committing elsewhere: then its response is about to be stored.
    if of_responses.iter().any(|reason| reason.code() == Some("TransactionConflict")) {
        return Some(AppendError::Busy);
    }
    // The decision is of no use, whatever else has changed.
    let has_failed = |reason: &CancellationReason| reason.code() == Some("ConditionalCheckFailed");
    if *requires_row && reasons.get(1).is_some_and(has_failed) {
        return Some(AppendError::RowChanged);
    }
    if failed("ConditionalCheckFailed") == Some(0) {
        return Some(conflict(key, &reasons[0]));
    }
    let raced = |code: &str| -> Vec<_> {
        let with_reason = others.iter().zip(reasons.iter().skip(1 + usize::from(*requires_row)));
        with_reason.filter(|(_, reason)| reason.code() == Some(code)).map(|(other, _)| other.clone()).collect()
    };
    let raced = [raced("ConditionalCheckFailed"), raced("TransactionConflict")].concat();
    if !raced.is_empty() {
        return Some(AppendError::Raced(raced));
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
    // The metadata is at the expected version, so a claim that is taken is no lost race.
    let of_claims = &before_responses[before_responses.len().saturating_sub(claims.len())..];
    if let Some(error) = failed_claims(claims, of_claims) {
        return Some(error);
    }
    // A row that the metadata does not count exists.
    let row = failed("ConditionalCheckFailed")?;
    let reason = format!("row {row} of the append exists, but the metadata is at the expected version");
    Some(StoreError::corrupt(key.to_string(), reason).into())
}

fn stored_response(key: &AggregateKey, reason: &CancellationReason) -> Result<Option<StoredResponse>, StoreError> {
    let used = reason.item().filter(|_| reason.code() == Some("ConditionalCheckFailed"));
    used.map(|item| Ok(idempotency::read_response(key, item.clone())?.0)).transpose()
}

/// The meaning of failed conditions of claims, whose reasons have the order of the claims.
fn failed_claims(claims: &[(Claim, bool)], reasons: &[CancellationReason]) -> Option<AppendError> {
    let failed = claims.iter().zip(reasons).filter(|(_, reason)| reason.code() == Some("ConditionalCheckFailed"));
    let mut elsewhere = Vec::new();
    for ((claim, takes), reason) in failed {
        if *takes {
            let holder = read_claim(claim, reason.item().cloned().unwrap_or_default());
            return Some(holder.map_or_else(Into::into, |row| AppendError::ClaimTaken {
                claim: claim.clone(),
                holder: row.holder(),
            }));
        }
        elsewhere.push(claim.clone());
    }
    (!elsewhere.is_empty()).then_some(AppendError::NotReleased(elsewhere))
}

/// The conflict, with the version that the failed condition returned; 0 when there is no metadata.
fn conflict(key: &AggregateKey, reason: &CancellationReason) -> AppendError {
    let Some(item) = reason.item().filter(|item| !item.is_empty()) else {
        return AppendError::Conflict { actual: 0 };
    };
    match serde_dynamo::from_item::<_, Metadata>(item.clone()) {
        Ok(metadata) => AppendError::Conflict { actual: metadata.current_seq_num },
        Err(error) => StoreError::corrupt(format!("the metadata of {key}"), error).into(),
    }
}
