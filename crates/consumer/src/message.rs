//! A message as it arrives from the bus.

use std::fmt;
use std::str::FromStr;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::HandleError;

/// The characters that separate the parts of a key in the consumer's table.
const SEPARATORS: [char; 2] = ['#', '/'];

/// A message.
#[derive(Clone, Debug, PartialEq)]
pub struct BusMessage {
    /// Its name, the `DetailType` on the bus.
    pub message_type: String,
    /// Its ids, its place in the order of its aggregate, and its origin.
    pub metadata: MessageMetadata,
    /// The whole `Detail`, also with metadata that this release does not know.
    pub(crate) detail: Value,
}

/// The metadata of a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MessageMetadata {
    /// The id of the message: unique, and the same in each delivery.
    pub message_id: String,
    /// The type of the aggregate.
    pub aggregate_type: String,
    /// The id of the aggregate.
    pub aggregate_id: String,
    /// The number of the event in its aggregate.
    pub seq_num: u64,
    /// The number of the message among those of the aggregate, counted from 1 without a gap.
    pub message_seq: u64,
    /// The epoch of that number. It counts from 1, and rises when Daybook's table is restored.
    pub epoch: u32,
    /// The epoch of the message before it. Only the first message of an aggregate in a later epoch has it, unless its
    /// number is 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_epoch: Option<u32>,
    /// The id of the event.
    pub event_id: String,
    /// The version of the event's stored form, which is the version of the message's data.
    pub event_version: u32,
    /// When the event was decided, RFC 3339.
    pub occurred_at: String,
    /// The id that all commands and messages of one business transaction share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// The message or request that caused the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub causation_id: Option<String>,
    /// The sender of the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// The `traceparent` of W3C trace context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// The trace header of X-Ray.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_header: Option<String>,
}

/// The highest number of a message: there is a number after it.
pub(crate) const MAX_MESSAGE_SEQ: u64 = u64::MAX - 1;

/// The place of a message in the order of its aggregate: by epoch, then by number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Number {
    /// The epoch; 0 before the first message.
    pub epoch: u32,
    /// The number in the epoch.
    pub message_seq: u64,
}

/// An event that is no message of Daybook.
#[derive(Debug, thiserror::Error)]
#[error("the event is no message of Daybook: {0}")]
pub struct UnreadableMessage(String);

impl BusMessage {
    /// The message with this name and `Detail`.
    ///
    /// # Errors
    ///
    /// When the metadata is missing or invalid.
    pub fn new(message_type: impl Into<String>, detail: Value) -> Result<Self, UnreadableMessage> {
        let metadata = MessageMetadata::deserialize(&detail["metadata"]);
        let metadata = metadata.map_err(|error| UnreadableMessage(format!("detail.metadata: {error}")))?;
        let (aggregate_type, id) = (&metadata.aggregate_type, &metadata.aggregate_id);
        if aggregate_type.is_empty() || id.is_empty() || format!("{aggregate_type}{id}").contains(SEPARATORS) {
            return Err(UnreadableMessage(format!("its aggregate cannot be {aggregate_type}/{id}")));
        }
        if !(1..=MAX_MESSAGE_SEQ).contains(&metadata.message_seq) || metadata.epoch == 0 {
            return Err(UnreadableMessage("messageSeq and epoch count from 1".to_owned()));
        }
        Ok(Self { message_type: message_type.into(), metadata, detail })
    }

    /// The message of an event as EventBridge delivers it.
    ///
    /// # Errors
    ///
    /// When the event is no message of Daybook.
    pub fn of_event(mut event: Value) -> Result<Self, UnreadableMessage> {
        let detail = event.get_mut("detail").map(Value::take).unwrap_or_default();
        let name =
            event["detail-type"].as_str().ok_or_else(|| UnreadableMessage("it has no detail-type".to_owned()))?;
        Self::new(name, detail)
    }

    /// The aggregate.
    pub fn aggregate(&self) -> AggregateId {
        AggregateId { aggregate_type: self.metadata.aggregate_type.clone(), id: self.metadata.aggregate_id.clone() }
    }

    /// The message's place in the order of its aggregate.
    pub fn number(&self) -> Number {
        Number { epoch: self.metadata.epoch, message_seq: self.metadata.message_seq }
    }

    /// The message's name and the version of its data, to select how it is read.
    pub fn form(&self) -> (&str, u32) {
        (&self.message_type, self.metadata.event_version)
    }

    /// The data.
    ///
    /// # Errors
    ///
    /// When the data does not fit `T`.
    pub fn data<T: DeserializeOwned>(&self) -> Result<T, HandleError> {
        T::deserialize(&self.detail["data"]).map_err(|error| HandleError::new(format!("the data: {error}")))
    }

    /// The error for an unknown version of a message. Return it if the consumer needs messages of this name: the
    /// aggregate stops. Deploy code that can read the version, and resume the aggregate.
    pub fn unknown(&self) -> HandleError {
        let (name, version) = self.form();
        HandleError::new(format!("{name} version {version} is unknown"))
    }
}

/// The name of an aggregate: `order/7`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AggregateId {
    /// Its type.
    pub aggregate_type: String,
    /// Its id.
    pub id: String,
}

impl fmt::Display for AggregateId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.aggregate_type, self.id)
    }
}

impl FromStr for AggregateId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/').filter(|(name, id)| !name.is_empty() && !id.is_empty());
        let parts = parts.map(|(name, id)| Self { aggregate_type: name.to_owned(), id: id.to_owned() });
        parts.ok_or_else(|| format!("{text:?} is no aggregate, expected TYPE/ID, as in order/7"))
    }
}

impl TryFrom<String> for AggregateId {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<AggregateId> for String {
    fn from(aggregate: AggregateId) -> Self {
        aggregate.to_string()
    }
}
