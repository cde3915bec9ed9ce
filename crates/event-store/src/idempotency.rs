//! Responses to commands, stored under an idempotency key in the transaction of the command.

use std::time::Duration;

use aws_sdk_dynamodb::types::{AttributeValue, Put, ReturnValuesOnConditionCheckFailure};
use daybook_table::{AggregateKey, IdempotencyItem, attributes, keys};
use jiff::Timestamp;

use crate::checksum;
use crate::error::{Cause, StoreError};
use crate::item::Item;
use crate::packing::pack;
use crate::store::EventStore;
use crate::stored_response::{CommandResponse, StoredResponse, read};
use crate::subject_keys::{Keys, seal};

/// The idempotency key of a request.
#[derive(Clone, Copy, Debug)]
pub struct IdempotencyKey<'a> {
    pub key: &'a str,
    /// SHA-256 of the request, in hexadecimal digits.
    pub digest: &'a str,
    /// The time for which the response is stored. Afterwards the key can be used again.
    pub ttl: Duration,
}

/// A response to be stored, if the append succeeds.
#[derive(Clone, Debug)]
pub(crate) struct ResponseToStore<'a> {
    pub idempotency: IdempotencyKey<'a>,
    pub response: CommandResponse,
    pub now: Timestamp,
}

impl EventStore {
    /// The response that is stored under a key, unless it has expired.
    pub async fn stored_response(
        &self,
        key: &AggregateKey,
        idempotency_key: &str,
        now: Timestamp,
    ) -> Result<Option<StoredResponse>, StoreError> {
        let row = self.row("read a stored response", key, keys::idempotency_sk(idempotency_key)).await?;
        let Some((mut stored, ttl)) = row.map(|row| read(key, row)).transpose()? else { return Ok(None) };
        if ttl <= now.as_second() {
            return Ok(None);
        }
        stored.open(&self.sealing, key).await?;
        Ok(Some(stored))
    }

    pub(crate) fn idempotency_row(
        &self,
        key: &AggregateKey,
        to_store: &ResponseToStore<'_>,
        keys_of_subjects: &Keys,
    ) -> Result<Item, StoreError> {
        let unwritable = |source: Cause| StoreError::corrupt(format!("a response of {key}"), source);
        let ResponseToStore { idempotency, response, now } = to_store;
        let pk = keys::pk(key);
        let sealed = seal(&response.body, &pk, keys_of_subjects)?;
        let item = IdempotencyItem {
            pk,
            sk: keys::idempotency_sk(idempotency.key),
            digest: idempotency.digest.to_owned(),
            status: response.status,
            version: response.version,
            state_version: response.state_version,
            body: pack(sealed.as_ref().unwrap_or(&response.body)).map_err(|error| unwritable(error.into()))?,
            ttl: (*now + idempotency.ttl).as_second(),
        };
        serde_dynamo::to_item(item).map(checksum::seal).map_err(|error| unwritable(error.into()))
    }

    /// Puts the row if the key is not in use. DynamoDB deletes late, so an expired row counts as deleted.
    pub(crate) fn put_unless_used(&self, row: Item, now: Timestamp) -> Put {
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
