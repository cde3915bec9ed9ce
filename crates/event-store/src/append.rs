//! The append: one transaction that moves the metadata on, puts the events and puts the messages into the outbox.

use std::time::Duration;

use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{
    AttributeValue, CancellationReason, ConditionCheck, Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem,
    Update,
};
use daybook_decider::record::timestamp;
use daybook_decider::{Decided, Model, RecordedEvent};
use daybook_table::{AggregateKey, EventItem, Metadata, OutboxItem, attributes, keys};
use tokio::time::{Instant, timeout_at};

use crate::backoff::Backoff;
use crate::error::{Cause, StoreError, cause, is_throttling};
use crate::idempotency::{self, ResponseToStore, StoredResponse};
use crate::limits::{TooLarge, check_transaction};
use crate::load::{Item, Loaded};
use crate::store::EventStore;

/// What an attempt that was begun in time may take beyond the deadline: DynamoDB answers in less.
const OVERRUN: Duration = Duration::from_millis(500);

const SECONDS_A_DAY: i64 = 24 * 60 * 60;

/// Why nothing was appended.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// Another writer was there first: load and decide again.
    #[error("the aggregate is at version {actual}")]
    Conflict {
        /// The version that it has.
        actual: u64,
    },
    /// The idempotency key was used before.
    #[error("the idempotency key was used before")]
    KeyUsed(StoredResponse),
    /// DynamoDB would not take it.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// Anything else.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl EventStore {
    /// Appends what was decided on `before`, if the aggregate is still at that version, and keeps an answer under an
    /// idempotency key: both happen or neither. That nothing is to be appended can be answered, and kept, too.
    ///
    /// Retries contention and throttling until `deadline`. An unknown outcome (a time-out, a lost connection) is
    /// cleared up before anything is reported: the same transaction is sent again under the same client token, and its
    /// first event is looked for.
    ///
    /// # Errors
    ///
    /// See [`AppendError`]. Nothing was written, with one exception: [`StoreError::Unavailable`] at the deadline may
    /// leave the outcome unknown.
    pub async fn append(
        &self,
        model: &dyn Model,
        key: &AggregateKey,
        before: u64,
        decided: &Decided,
        keep: Option<ResponseToStore<'_>>,
        deadline: Instant,
    ) -> Result<Loaded, AppendError> {
        if !decided.events.is_empty() || keep.is_some() {
            let transaction = self.transaction(model, key, before, decided, keep.as_ref())?;
            self.commit(key, decided.events.first(), &transaction, keep.is_some(), deadline).await?;
        }
        Ok(self.remember(model, key, decided.after.clone())?)
    }

    /// The items of the transaction: the metadata first, then the events, then the messages, last the kept answer.
    fn transaction(
        &self,
        model: &dyn Model,
        key: &AggregateKey,
        before: u64,
        decided: &Decided,
        keep: Option<&ResponseToStore<'_>>,
    ) -> Result<Vec<TransactWriteItem>, AppendError> {
        let due =
            |event: &RecordedEvent| !model.full_history() && event.seq_num.is_multiple_of(self.settings.snapshot_every);
        let end = decided.after.version();
        let events = decided
            .events
            .iter()
            .map(|event| EventItem {
                append_end: (event.seq_num < end).then_some(end),
                ..EventItem::new(key, event, self.settings.event_type_shards, due(event))
            })
            .map(serde_dynamo::to_item);
        let messages = decided
            .messages
            .iter()
            .map(|message| {
                let ttl = message.occurred_at.as_second() + self.settings.outbox_ttl_days * SECONDS_A_DAY;
                OutboxItem::new(key, message, ttl)
            })
            .map(serde_dynamo::to_item);
        let rows: Vec<Item> = events
            .chain(messages)
            .collect::<Result<_, _>>()
            .map_err(|fault| StoreError::Corrupt { item: format!("a new row of {key}"), source: fault.into() })?;
        let kept = keep.map(|keep| self.idempotency_row(key, keep)).transpose()?;
        let deleted = model.is_deleted(&decided.after);
        check_transaction(std::iter::once(&metadata_item(key, decided, deleted)).chain(&rows), kept.as_ref())?;

        let metadata = TransactWriteItem::builder();
        let metadata = if decided.events.is_empty() {
            metadata.condition_check(self.metadata_check(key, before))
        } else {
            metadata.update(self.metadata_update(key, before, decided, deleted))
        };
        let puts = rows.into_iter().map(|row| self.put_new(row));
        let kept = kept.zip(keep).map(|(row, keep)| self.put_unless_used(row, keep.now));
        let puts = puts.chain(kept).map(|put| TransactWriteItem::builder().put(put).build());
        Ok(std::iter::once(metadata.build()).chain(puts).collect())
    }

    /// That the metadata stands at `before`, and stays.
    fn metadata_check(&self, key: &AggregateKey, before: u64) -> ConditionCheck {
        let (condition, value) = is_at(before);
        ConditionCheck::builder()
            .table_name(&self.settings.table_name)
            .key(attributes::PK, AttributeValue::S(key.pk()))
            .key(attributes::SK, AttributeValue::S(keys::METADATA.to_owned()))
            .condition_expression(condition)
            .set_expression_attribute_values(value.map(|value| Item::from([value])))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .build()
            .expect("table, key and condition are set above")
    }

    fn metadata_update(&self, key: &AggregateKey, before: u64, decided: &Decided, deleted: bool) -> Update {
        let number = |value: u64| AttributeValue::N(value.to_string());
        let occurred_at = decided.events.last().map(|event| timestamp(event.occurred_at)).unwrap_or_default();
        let mut sets = vec![
            (attributes::CURRENT_SEQ_NUM, ":version", number(decided.after.version())),
            (attributes::MESSAGE_SEQ, ":messages", number(decided.after.message_seq())),
            (attributes::UPDATED_AT, ":now", AttributeValue::S(occurred_at.clone())),
        ];
        if deleted {
            sets.push((attributes::DELETED, ":deleted", AttributeValue::Bool(true)));
        }
        let mut update = Update::builder();
        if before == 0 {
            sets.push((attributes::AGGREGATE_TYPE, ":type", AttributeValue::S(key.aggregate_type.clone())));
            sets.push((attributes::AGGREGATE_ID, ":id", AttributeValue::S(key.id.clone())));
            sets.push((attributes::CREATED_AT, ":created", AttributeValue::S(occurred_at)));
        }
        let (condition, value) = is_at(before);
        if let Some((placeholder, value)) = value {
            update = update.expression_attribute_values(placeholder, value);
        }
        let expression = sets.iter().map(|(name, value, _)| format!("{name} = {value}")).collect::<Vec<_>>().join(", ");
        for (_, placeholder, value) in sets {
            update = update.expression_attribute_values(placeholder, value);
        }
        update
            .table_name(&self.settings.table_name)
            .key(attributes::PK, AttributeValue::S(key.pk()))
            .key(attributes::SK, AttributeValue::S(keys::METADATA.to_owned()))
            .update_expression(format!("SET {expression}"))
            .condition_expression(condition)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .build()
            .expect("table, key and expression are set above")
    }

    fn put_new(&self, row: Item) -> Put {
        Put::builder()
            .table_name(&self.settings.table_name)
            .set_item(Some(row))
            .condition_expression(format!("attribute_not_exists({})", attributes::PK))
            .build()
            .expect("table and item are set above")
    }

    /// Sends the transaction until its outcome is known.
    async fn commit(
        &self,
        key: &AggregateKey,
        first: Option<&RecordedEvent>,
        transaction: &[TransactWriteItem],
        keeps: bool,
        deadline: Instant,
    ) -> Result<(), AppendError> {
        // Unique to this attempt at the command, as its event's id is; a token may have 36 characters.
        let token = first.map_or_else(|| format!("{:032x}", fastrand::u128(..)), |first| first.event_id.to_string());
        let mut backoff = Backoff::until(deadline);
        let mut in_doubt = false;
        loop {
            let attempt = self
                .client
                .transact_write_items()
                .set_transact_items(Some(transaction.to_vec()))
                .client_request_token(&token)
                .customize()
                .config_override(aws_sdk_dynamodb::config::Config::builder().retry_config(RetryConfig::disabled()))
                .send();
            let error = match timeout_at(deadline + OVERRUN, attempt).await {
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(error)) => AttemptError::of(key, keeps, error),
                Err(elapsed) => AttemptError::Unknown(elapsed.into()),
            };
            let cause = match error {
                // The conflict may be with our own earlier attempt.
                AttemptError::Final(error) => {
                    return if in_doubt && self.is_stored(key, first).await? { Ok(()) } else { Err(error) };
                }
                AttemptError::NotWritten(cause) => cause,
                AttemptError::Unknown(cause) => {
                    in_doubt = true;
                    cause
                }
            };
            tracing::debug!(aggregate = %key, cause, in_doubt, "append is tried again");
            if !backoff.wait().await {
                if in_doubt && self.is_stored(key, first).await? {
                    return Ok(());
                }
                return Err(StoreError::Unavailable { doing: "append", source: cause }.into());
            }
        }
    }

    /// Whether this very event is in the stream.
    async fn is_stored(&self, key: &AggregateKey, event: Option<&RecordedEvent>) -> Result<bool, StoreError> {
        let Some(event) = event else { return Ok(false) };
        let page = self.events(key, event.seq_num - 1, 1).await?;
        Ok(page.items.first().is_some_and(|stored| stored.event_id == event.event_id))
    }
}

/// The condition that the metadata stands at a version, and its value.
///
/// Never "or does not exist": that would let a wrong version begin a stream with a gap.
fn is_at(version: u64) -> (String, Option<(String, AttributeValue)>) {
    match version {
        0 => (format!("attribute_not_exists({})", attributes::PK), None),
        version => {
            let value = (":before".to_owned(), AttributeValue::N(version.to_string()));
            (format!("{} = :before", attributes::CURRENT_SEQ_NUM), Some(value))
        }
    }
}

/// The metadata as it will be, for its size. When the aggregate was created is not known here, but as long as any time.
fn metadata_item(key: &AggregateKey, decided: &Decided, deleted: bool) -> Item {
    let text = AttributeValue::S;
    let number = |value: u64| AttributeValue::N(value.to_string());
    let now = decided.events.last().map(|event| timestamp(event.occurred_at)).unwrap_or_default();
    let mut item = vec![
        (attributes::PK, text(key.pk())),
        (attributes::SK, text(keys::METADATA.to_owned())),
        (attributes::AGGREGATE_TYPE, text(key.aggregate_type.clone())),
        (attributes::AGGREGATE_ID, text(key.id.clone())),
        (attributes::CURRENT_SEQ_NUM, number(decided.after.version())),
        (attributes::MESSAGE_SEQ, number(decided.after.message_seq())),
        (attributes::CREATED_AT, text(now.clone())),
        (attributes::UPDATED_AT, text(now)),
    ];
    if deleted {
        item.push((attributes::DELETED, AttributeValue::Bool(true)));
    }
    item.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// What a failed attempt means.
enum AttemptError {
    /// Decided: trying again changes nothing.
    Final(AppendError),
    /// Nothing was written and trying again may help.
    NotWritten(Cause),
    /// It may have been written.
    Unknown(Cause),
}

impl AttemptError {
    fn of(key: &AggregateKey, keeps: bool, error: SdkError<TransactWriteItemsError>) -> Self {
        let refused = |source| Self::Final(StoreError::Refused { doing: "append", source }.into());
        let meaning: fn(Cause) -> Self = match &error {
            SdkError::ConstructionFailure(_) => refused,
            SdkError::ServiceError(answer) => match answer.err() {
                TransactWriteItemsError::TransactionCanceledException(cancelled) => {
                    match Self::of_reasons(key, keeps, cancelled.cancellation_reasons()) {
                        Some(known) => return known,
                        None => refused,
                    }
                }
                // Our own earlier attempt is still at work.
                TransactWriteItemsError::TransactionInProgressException(_) => Self::Unknown,
                error if error.code().is_some_and(is_throttling) => Self::NotWritten,
                _ if answer.raw().status().is_server_error() => Self::Unknown,
                _ => refused,
            },
            _ => Self::Unknown,
        };
        meaning(cause(error))
    }

    /// Reads a cancelled transaction item by item. The metadata is the first, and only its condition is about versions;
    /// a kept answer is the last, and settles the request whatever became of the version since.
    fn of_reasons(key: &AggregateKey, keeps: bool, reasons: &[CancellationReason]) -> Option<Self> {
        let failed = |code: &str| reasons.iter().position(|reason| reason.code() == Some(code));
        let kept = reasons.last().filter(|reason| keeps && reason.code() == Some("ConditionalCheckFailed"));
        if let Some(item) = kept.and_then(CancellationReason::item) {
            return Some(Self::Final(match idempotency::read(key, item.clone()) {
                Ok((stored, _)) => AppendError::KeyUsed(stored),
                Err(error) => error.into(),
            }));
        }
        // Perhaps this very request is being committed elsewhere: then its answer is about to be there.
        if keeps && reasons.last().is_some_and(|reason| reason.code() == Some("TransactionConflict")) {
            return Some(Self::NotWritten("TransactionConflict".into()));
        }
        if failed("ConditionalCheckFailed") == Some(0) {
            return Some(Self::Final(conflict(key, &reasons[0])));
        }
        // Before the other rows are looked at: while another transaction commits, its rows may be there already and the
        // metadata still be held.
        let passing = ["TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"];
        if let Some(code) = passing.into_iter().find(|code| failed(code).is_some()) {
            return Some(Self::NotWritten(code.into()));
        }
        // The metadata agrees, and yet a row is there that it does not know of.
        let row = failed("ConditionalCheckFailed")?;
        let source = format!("row {row} of an append exists beyond the metadata").into();
        Some(Self::Final(StoreError::Corrupt { item: key.to_string(), source }.into()))
    }
}

/// The conflict with the version that the failed condition returned; 0 when there is no metadata at all.
fn conflict(key: &AggregateKey, reason: &CancellationReason) -> AppendError {
    let Some(item) = reason.item().filter(|item| !item.is_empty()) else {
        return AppendError::Conflict { actual: 0 };
    };
    match serde_dynamo::from_item::<_, Metadata>(item.clone()) {
        Ok(metadata) => AppendError::Conflict { actual: metadata.current_seq_num },
        Err(fault) => StoreError::Corrupt { item: format!("the metadata of {key}"), source: fault.into() }.into(),
    }
}
