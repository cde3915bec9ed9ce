//! The items of the views table as structs, and their keys. Stored format: they never change.

use std::fmt;

use aws_sdk_dynamodb::types::CancellationReason;
use daybook_decider::Json;
use daybook_event_store::StoreError;
use daybook_event_store::internal::Item;
use daybook_table::{AggregateKey, attributes};
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

pub(crate) const POSITION: &str = "#POSITION";

pub(crate) const POINTER: &str = "#POINTER";

pub(crate) const MARK: &str = "VERSION#";

/// The partition of the pointer and the marks of a projection.
pub(crate) fn projection_pk(name: &str) -> String {
    format!("PROJECTION#{name}")
}

pub(crate) fn mark_sk(version: u32) -> String {
    format!("{MARK}{version}")
}

/// The name of the rows of one version of a projection.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct View {
    pub name: String,
    pub version: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartKey {
    /// The key that readers use.
    pub key: String,
    pub part: u32,
}

impl fmt::Display for View {
    /// `orders-by-day@1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.name, self.version)
    }
}

impl View {
    pub fn new(name: impl Into<String>, version: u32) -> Self {
        Self { name: name.into(), version }
    }

    pub(crate) fn rows_pk(&self, part: u32) -> String {
        format!("{}{part}", self.rows_prefix())
    }

    pub(crate) fn rows_prefix(&self) -> String {
        format!("VIEW#{self}#")
    }

    pub(crate) fn positions_prefix(&self) -> String {
        format!("POSITION#{self}#")
    }

    pub(crate) fn position_pk(&self, aggregate: &AggregateKey) -> String {
        format!("{}{}#{}", self.positions_prefix(), aggregate.aggregate_type, aggregate.id)
    }

    pub(crate) fn of_position(pk: &str) -> Option<(Self, AggregateKey)> {
        let (view, aggregate) = pk.strip_prefix("POSITION#")?.split_once('#')?;
        let (name, version) = view.split_once('@')?;
        let (aggregate_type, id) = aggregate.split_once('#')?;
        Some((Self::new(name, version.parse().ok()?), AggregateKey::new(aggregate_type, id)))
    }
}

/// The number of the part that an aggregate changes, in each row. Stored format: the function never changes.
pub fn part_of(aggregate: &AggregateKey, part_count: u32) -> u32 {
    let hash = daybook_table::keys::stable_hash(&aggregate.to_string()) % u64::from(part_count.max(1));
    u32::try_from(hash).expect("the remainder is smaller than the number of parts")
}
