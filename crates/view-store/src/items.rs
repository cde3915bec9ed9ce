//! The items as structs.

use aws_sdk_dynamodb::types::CancellationReason;
use daybook_decider::Json;
use daybook_event_store::StoreError;
use daybook_event_store::internal::Item;
use daybook_table::attributes;
use serde::{Deserialize, Serialize};

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

pub(crate) fn read<T: for<'de> Deserialize<'de>>(item: Item) -> Result<T, StoreError> {
    let name = format!("{:?} {:?}", item.get(attributes::PK), item.get(attributes::SK));
    serde_dynamo::from_item(item).map_err(|error| StoreError::Corrupt { item: name, source: error.into() })
}

pub(crate) fn json(name: &str, text: String) -> Result<Json, StoreError> {
    Json::parse(text).map_err(|error| StoreError::Corrupt { item: name.to_owned(), source: error.into() })
}

/// Whether a transaction was cancelled because an item has changed since it was read, or is being changed.
pub(crate) fn is_conflict(reasons: &[CancellationReason]) -> bool {
    reasons.iter().any(|reason| matches!(reason.code(), Some("ConditionalCheckFailed" | "TransactionConflict")))
}
