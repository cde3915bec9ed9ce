//! The response to a command, and its stored form.

use daybook_decider::{Json, personal};
use daybook_table::{AggregateKey, IdempotencyItem, keys};

use crate::checksum;
use crate::error::{Cause, StoreError};
use crate::item::Item;
use crate::packing::unpack;
use crate::subject_keys::Sealing;

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

/// The response of a row, and the time at which it expires. A row that is not as it was written is not replayed.
pub(crate) fn read(key: &AggregateKey, item: Item) -> Result<(StoredResponse, i64), StoreError> {
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
