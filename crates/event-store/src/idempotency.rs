//! Responses to commands, stored under an idempotency key in the transaction of the command.

use std::time::Duration;

use aws_sdk_dynamodb::types::{AttributeValue, Put, ReturnValuesOnConditionCheckFailure};
use daybook_decider::{Json, personal};
use daybook_table::{AggregateKey, IdempotencyItem, attributes, keys};
use jiff::Timestamp;

use crate::checksum;
use crate::error::{Cause, StoreError};
use crate::item::Item;
use crate::packing::{pack, unpack};
use crate::subject_keys::{Keys, Sealing, seal};

#[derive(Clone, Copy, Debug)]
pub struct IdempotencyKey<'a> {
    pub key: &'a str,
    /// SHA-256 of the request, in hexadecimal digits.
    pub digest: &'a str,
    /// The time for which the response is stored. Afterwards the key can be used again.
    pub ttl: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandResponse {
    /// The status code, which the store only passes on.
    pub status: u16,
    pub version: u64,
    /// The `STATE_VERSION` of the state in the body.
    pub state_version: u32,
    pub body: String,
}

/// A response, and the digest that distinguishes its request from others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredResponse {
    /// SHA-256 of the request, in hexadecimal digits.
    pub digest: String,
    pub response: CommandResponse,
}

#[derive(Clone, Debug)]
pub(crate) struct ResponseToStore<'a> {
    pub idempotency: IdempotencyKey<'a>,
    pub response: CommandResponse,
    pub now: Timestamp,
}

impl ResponseToStore<'_> {
    pub(crate) fn row(&self, key: &AggregateKey, keys_of_subjects: &Keys) -> Result<Item, StoreError> {
        let unwritable = |source: Cause| StoreError::corrupt(format!("a response of {key}"), source);
        let Self { idempotency, response, now } = self;
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
    pub(crate) fn put_unless_used(&self, table_name: &str, row: Item) -> Put {
        Put::builder()
            .table_name(table_name)
            .set_item(Some(row))
            .condition_expression(format!("attribute_not_exists({}) OR #ttl <= :now", attributes::PK))
            .expression_attribute_names("#ttl", attributes::TTL)
            .expression_attribute_values(":now", AttributeValue::N(self.now.as_second().to_string()))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .build()
            .expect("table and item are set above")
    }
}

impl StoredResponse {
    /// Opens the personal values in its body.
    pub(crate) async fn open(&mut self, sealing: &Sealing, key: &AggregateKey) -> Result<(), StoreError> {
        let body = &mut self.response.body;
        if personal::contains(body) {
            let corrupt = |error: serde_json::Error| StoreError::corrupt(format!("a stored response of {key}"), error);
            let mut json = Json::parse(std::mem::take(body)).map_err(corrupt)?;
            sealing.open([(keys::pk(key), &mut json)].into_iter()).await?;
            *body = json.text().to_owned();
        }
        Ok(())
    }
}

/// The stored response of a row, and the time at which it expires. A row that is not as it was written is not replayed.
pub(crate) fn read_response(key: &AggregateKey, item: Item) -> Result<(StoredResponse, i64), StoreError> {
    let corrupt = |source: Cause| StoreError::corrupt(format!("a stored response of {key}"), source);
    if !checksum::is_valid(&item) {
        return Err(corrupt("its checksum does not match its content".into()));
    }
    let item: IdempotencyItem = serde_dynamo::from_item(item).map_err(|error| corrupt(error.into()))?;
    let body = unpack(item.body).map_err(|error| corrupt(error.into()))?;
    let IdempotencyItem { status, version, state_version, .. } = item;
    let response = CommandResponse { status, version, state_version, body };
    Ok((StoredResponse { digest: item.digest, response }, item.ttl))
}
