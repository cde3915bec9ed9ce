//! The item of a position: how far the processes of a type have handled the events of another aggregate.

use daybook_decider::AggregateKey;
use daybook_decider::record::timestamp;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::items::DeadlineItem;
use crate::{attributes, keys};

/// `POSITION#…`, in the partition of the aggregate whose events are handled. Without a row, none are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PositionItem {
    pub pk: String,
    /// The type of the processes.
    pub sk: String,
    /// The number of the last event that was handled.
    pub seq_num: u64,
    /// [`keys::SUSPENDED_POSITIONS`] if the next event cannot be handled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gsi1pk: Option<String>,
    /// RFC 3339; when that was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gsi1sk: Option<String>,
    /// RFC 3339; since when the next event cannot be handled, if it is not suspended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing_since: Option<String>,
    /// Why it cannot be handled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl PositionItem {
    /// The attributes of a position whose next event cannot be handled.
    pub const OF_FAILING: [&str; 4] = [attributes::GSI1PK, attributes::GSI1SK, "failingSince", "error"];

    pub fn new(source: &AggregateKey, process_type: &str, seq_num: u64) -> Self {
        let (pk, sk) = (keys::pk(source), keys::position_sk(process_type));
        Self { pk, sk, seq_num, gsi1pk: None, gsi1sk: None, failing_since: None, error: None }
    }

    /// The position before an event that cannot be handled. The reason is truncated like that of a deadline.
    #[must_use]
    pub fn suspended(self, error: &str, at: Timestamp) -> Self {
        let (partition, error) = (keys::SUSPENDED_POSITIONS.to_owned(), DeadlineItem::truncated(error));
        Self { gsi1pk: Some(partition), gsi1sk: Some(timestamp(at)), error: Some(error), ..self }
    }

    /// The position before an event that cannot be handled, and is tried again.
    #[must_use]
    pub fn failing(self, since: Timestamp) -> Self {
        Self { failing_since: Some(timestamp(since)), ..self }
    }

    pub fn is_suspended(&self) -> bool {
        self.gsi1pk.is_some()
    }

    pub fn process_type(&self) -> &str {
        self.sk.strip_prefix(keys::POSITION_PREFIX).unwrap_or(&self.sk)
    }
}
