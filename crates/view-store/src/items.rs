//! The items as structs.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::{AttributeValue, CancellationReason};
use daybook_decider::Json;
use daybook_event_store::StoreError;
use daybook_table::attributes;
use serde::{Deserialize, Serialize};

/// An item: attribute names and values.
pub(crate) type Item = HashMap<String, AttributeValue>;

pub(crate) fn primary_key(pk: String, sk: String) -> Item {
    let key = [(attributes::PK, pk), (attributes::SK, sk)];
    Item::from(key.map(|(name, value)| (name.to_owned(), AttributeValue::S(value))))
}

/// A part of a row.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RowItem {
    pub(crate) pk: String,
    pub(crate) sk: String,
    /// JSON text.
    pub(crate) row: String,
    /// The id of the write, unique for each write of the part.
    pub(crate) write_id: String,
}

/// The position of an aggregate in a view: how far its events are folded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// The number of the last event that is folded.
    pub seq_num: u64,
    /// The projection's state of the aggregate after that event.
    pub state: Json,
    /// Why the next event cannot be folded; `None` if the aggregate is not suspended.
    pub suspended: Option<String>,
    /// When the aggregate was resumed, if no event has been folded since.
    pub resumed_at: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PositionItem {
    pub(crate) pk: String,
    pub(crate) sk: String,
    pub(crate) seq_num: u64,
    /// JSON text.
    pub(crate) state: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) suspended: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) resumed_at: Option<String>,
}

/// Reads an item as a struct.
pub(crate) fn read<T: for<'de> Deserialize<'de>>(item: Item) -> Result<T, StoreError> {
    let name = format!("{:?} {:?}", item.get(attributes::PK), item.get(attributes::SK));
    serde_dynamo::from_item(item).map_err(|error| StoreError::Corrupt { item: name, source: error.into() })
}

/// Reads JSON text of the item `name`.
pub(crate) fn json(name: &str, text: String) -> Result<Json, StoreError> {
    Json::parse(text).map_err(|error| StoreError::Corrupt { item: name.to_owned(), source: error.into() })
}

/// Whether a transaction was cancelled because an item has changed since it was read, or is being changed.
pub(crate) fn is_conflict(reasons: &[CancellationReason]) -> bool {
    reasons.iter().any(|reason| matches!(reason.code(), Some("ConditionalCheckFailed" | "TransactionConflict")))
}

/// Times as RFC 3339 text.
pub(crate) mod times {
    use jiff::Timestamp;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

    #[expect(clippy::ref_option, reason = "serde calls it with a reference to the field")]
    pub(crate) fn serialize<S: Serializer>(time: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
        time.map(|time| time.to_string()).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| text.parse().map_err(de::Error::custom)).transpose()
    }
}
