//! The input and output of a function behind a queue of SQS.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A batch of messages, as SQS passes it to a function.
#[derive(Clone, Debug, Deserialize)]
pub struct QueueBatch {
    #[serde(rename = "Records")]
    pub records: Vec<QueueRecord>,
}

/// A message. It is read from a record of any form, so that an invalid one cannot fail the others.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "Value")]
pub struct QueueRecord {
    /// Its id. A record without an id has an empty one, for which SQS delivers the whole batch again.
    pub message_id: String,
    pub body: String,
}

impl QueueRecord {
    pub fn new(message_id: impl Into<String>, body: impl Into<String>) -> Self {
        Self { message_id: message_id.into(), body: body.into() }
    }
}

impl From<Value> for QueueRecord {
    fn from(record: Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Self::new(text(&record["messageId"]), text(&record["body"]))
    }
}

/// The messages that SQS must deliver again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueResponse {
    pub batch_item_failures: Vec<QueueFailure>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueFailure {
    pub item_identifier: String,
}

impl QueueResponse {
    /// The response that makes SQS deliver the messages with these ids again.
    pub fn failed(message_ids: impl IntoIterator<Item = String>) -> Self {
        let failure = |item_identifier| QueueFailure { item_identifier };
        Self { batch_item_failures: message_ids.into_iter().map(failure).collect() }
    }
}
