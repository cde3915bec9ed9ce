//! Answers that are kept under an idempotency key, in the transaction that they answer.

use aws_sdk_dynamodb::types::{AttributeValue, Put, ReturnValuesOnConditionCheckFailure};
use daybook_table::{AggregateKey, IdempotencyItem, attributes, keys};
use jiff::Timestamp;

use crate::error::{Cause, StoreError};
use crate::load::Item;
use crate::packing::{pack, unpack};
use crate::store::EventStore;

/// An answer, and what tells its request from others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredResponse {
    /// SHA-256 of the request, in hexadecimal digits.
    pub digest: String,
    /// The HTTP status.
    pub status: u16,
    /// The version that the `ETag` told.
    pub version: u64,
    /// The body.
    pub body: String,
}

/// An answer to be kept.
#[derive(Clone, Debug)]
pub struct ResponseToStore<'a> {
    /// The idempotency key.
    pub key: &'a str,
    /// The answer, if the append succeeds.
    pub answer: StoredResponse,
    /// Now.
    pub now: Timestamp,
    /// When the key can be used anew.
    pub expires: Timestamp,
}

impl EventStore {
    /// The answer that is kept under a key, unless its time is past.
    ///
    /// # Errors
    ///
    /// See [`StoreError`].
    pub async fn stored_response(
        &self,
        key: &AggregateKey,
        idempotency_key: &str,
        now: Timestamp,
    ) -> Result<Option<StoredResponse>, StoreError> {
        let answer = self
            .row(key, keys::idempotency_sk(idempotency_key))
            .send()
            .await
            .map_err(|fault| StoreError::of_call("read a kept answer", fault))?;
        let kept = answer.item.map(|item| read(key, item)).transpose()?;
        Ok(kept.filter(|(_, ttl)| *ttl > now.as_second()).map(|(kept, _)| kept))
    }

    /// The row of a kept answer.
    pub(crate) fn idempotency_row(&self, key: &AggregateKey, keep: &ResponseToStore<'_>) -> Result<Item, StoreError> {
        let unwritable = |fault: Cause| StoreError::Corrupt { item: format!("an answer of {key}"), source: fault };
        let item = IdempotencyItem {
            pk: key.pk(),
            sk: keys::idempotency_sk(keep.key),
            digest: keep.answer.digest.clone(),
            status: keep.answer.status,
            version: keep.answer.version,
            body: pack(&keep.answer.body).map_err(|fault| unwritable(fault.into()))?,
            ttl: keep.expires.as_second(),
        };
        serde_dynamo::to_item(item).map_err(|fault| unwritable(fault.into()))
    }

    /// Puts the row where the key is not in use. DynamoDB deletes late, so a row whose time is past is as good as none.
    pub(crate) fn put_unless_kept(&self, row: Item, now: Timestamp) -> Put {
        Put::builder()
            .table_name(&self.settings.table_name)
            .set_item(Some(row))
            .condition_expression(format!("attribute_not_exists({}) OR #ttl <= :now", attributes::PK))
            .expression_attribute_names("#ttl", attributes::TTL)
            .expression_attribute_values(":now", AttributeValue::N(now.as_second().to_string()))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .build()
            .expect("table and item are set above")
    }
}

/// The answer of a row, and when its time is past.
pub(crate) fn read(key: &AggregateKey, item: Item) -> Result<(StoredResponse, i64), StoreError> {
    let corrupt = |fault: Cause| StoreError::Corrupt { item: format!("a kept answer of {key}"), source: fault };
    let item: IdempotencyItem = serde_dynamo::from_item(item).map_err(|fault| corrupt(fault.into()))?;
    let body = unpack(item.body).map_err(|fault| corrupt(fault.into()))?;
    Ok((StoredResponse { digest: item.digest, status: item.status, version: item.version, body }, item.ttl))
}
