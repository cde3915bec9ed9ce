//! The items of the consumer's table, and their keys. Stored format: it never changes.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;
use serde::{Deserialize, Serialize};

use crate::error::TableError;
use crate::message::{AggregateId, BusMessage, Number};
use crate::rows::RowKey;

pub(crate) const PK: &str = "pk";
pub(crate) const SK: &str = "sk";
/// Position: the attribute that each write raises.
pub(crate) const REVISION: &str = "revision";
/// Row: the attribute that each write replaces.
pub(crate) const WRITE_ID: &str = "writeId";

pub(crate) const POSITION: &str = "#POSITION";
/// The beginning of the sort keys of waiting messages. They follow the position in its partition.
pub(crate) const WAITING: &str = "WAITING#";

pub(crate) type Item = HashMap<String, AttributeValue>;

/// The partition of an aggregate's position and waiting messages.
pub(crate) fn position_pk(consumer: &str, aggregate: &AggregateId) -> String {
    format!("POSITION#{consumer}#{}#{}", aggregate.aggregate_type, aggregate.id)
}

/// The sort key of a waiting message: in the order of messages.
pub(crate) fn waiting_sk(number: Number) -> String {
    format!("{WAITING}{:010}#{:020}", number.epoch, number.message_seq)
}

/// The partition of the aggregates whose messages wait.
pub(crate) fn incomplete_pk(consumer: &str) -> String {
    format!("INCOMPLETE#{consumer}")
}

pub(crate) fn row_key(consumer: &str, key: &RowKey) -> Item {
    primary_key(format!("ROW#{consumer}#{}", key.partition), key.sort.clone())
}

pub(crate) fn primary_key(pk: String, sk: String) -> Item {
    Item::from([(PK, pk), (SK, sk)].map(|(name, value)| (name.to_owned(), AttributeValue::S(value))))
}

/// How far the messages of an aggregate are applied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PositionItem {
    /// Raised by each write; 0 if there is no item.
    pub(crate) revision: u64,
    /// The last message that was applied or skipped.
    pub(crate) epoch: u32,
    pub(crate) message_seq: u64,
    /// The id of that message; missing if it was skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) message_id: Option<String>,
    /// The number of stored messages. A query during a transaction may return only some of its items; this number shows it.
    pub(crate) waiting: u64,
    /// The number of failed attempts at the next message, and the last error.
    pub(crate) attempts: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// RFC 3339.
    pub(crate) updated_at: String,
}

impl PositionItem {
    pub(crate) fn number(&self) -> Number {
        Number { epoch: self.epoch, message_seq: self.message_seq }
    }
}

/// A message whose turn has not come.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WaitingItem {
    pub(crate) message_type: String,
    /// JSON text.
    pub(crate) detail: String,
    /// RFC 3339.
    pub(crate) stored_at: String,
}

impl WaitingItem {
    pub(crate) fn new(message: &BusMessage, now: &str) -> Self {
        let (message_type, detail) = (message.message_type.clone(), message.detail.to_string());
        Self { message_type, detail, stored_at: now.to_owned() }
    }

    pub(crate) fn message(self) -> Result<BusMessage, Box<dyn std::error::Error + Send + Sync>> {
        Ok(BusMessage::new(self.message_type, serde_json::from_str(&self.detail)?)?)
    }
}

/// An aggregate whose messages wait.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct IncompleteItem {
    pub(crate) aggregate_type: String,
    pub(crate) aggregate_id: String,
    /// Since when messages of it wait, RFC 3339.
    pub(crate) since: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RowItem {
    /// JSON text.
    pub(crate) row: String,
    pub(crate) write_id: String,
}

/// The item with this primary key and the attributes of `value`.
pub(crate) fn item(key: Item, value: impl Serialize) -> Item {
    let attributes: Item = serde_dynamo::to_item(value).expect("the structs of this file have attributes");
    key.into_iter().chain(attributes).collect()
}

pub(crate) fn read<T: for<'de> Deserialize<'de>>(item: Item) -> Result<T, TableError> {
    let name = format!("{:?} {:?}", item.get(PK), item.get(SK));
    serde_dynamo::from_item(item).map_err(|error| TableError::Corrupt { item: name, source: error.into() })
}

/// The size of an item by the rule of DynamoDB: the UTF-8 bytes of its names and texts, and for a number one byte for
/// every two digits and one more. Rounded up.
pub(crate) fn item_size(item: &Item) -> usize {
    let size = |value: &AttributeValue| match value {
        AttributeValue::S(text) | AttributeValue::N(text) => text.len(),
        _ => 1,
    };
    item.iter().map(|(name, value)| name.len() + size(value) + 1).sum()
}
