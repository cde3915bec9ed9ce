//! The input and output of a function behind a queue.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use metrics::histogram;
use serde::{Deserialize, Serialize};
use serde_json::Value;

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
    pub sent: Option<SystemTime>,
}

impl QueueBatch {
    /// The response that makes SQS deliver the messages with these ids again. The metric of this name gets the age of the oldest one
    /// of them in seconds: SQS leaves messages that were received three times out of its own metric of ages.
    pub fn failed(&self, message_ids: BTreeSet<String>, oldest: &'static str, now: SystemTime) -> QueueResponse {
        let failed = self.records.iter().filter(|record| message_ids.contains(&record.message_id));
        if let Some(sent) = failed.filter_map(|record| record.sent).min() {
            histogram!(oldest).record(now.duration_since(sent).unwrap_or_default().as_secs_f64());
        }
        let failure = |item_identifier| QueueFailure { item_identifier };
        QueueResponse { batch_item_failures: message_ids.into_iter().map(failure).collect() }
    }
}

impl QueueRecord {
    pub fn new(message_id: impl Into<String>, body: impl Into<String>) -> Self {
        Self { message_id: message_id.into(), body: body.into(), sent: None }
    }
}

impl From<Value> for QueueRecord {
    fn from(record: Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let sent = record["attributes"]["SentTimestamp"].as_str().and_then(|milliseconds| milliseconds.parse().ok());
        let sent = sent.map(|milliseconds| UNIX_EPOCH + Duration::from_millis(milliseconds));
        Self { sent, ..Self::new(text(&record["messageId"]), text(&record["body"])) }
    }
}

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
