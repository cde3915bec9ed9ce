//! The bucket of discarded records, and what an object in it contains.

use std::collections::BTreeMap;
use std::fmt;

use daybook_settings::Environment;
use daybook_stream_relay::{BatchRows, StreamBatch};
use daybook_table::keys::partition_name;
use daybook_table::{AggregateKey, OutboxItem};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::OperatorError;
use crate::signed_calls::{S3, SignedCalls, texts};

/// The characters of a key that a path contains as they are.
const KEY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// The characters of a value of a query that need no escape.
const VALUE: &AsciiSet = &KEY.add(b'/');

const PREFIX: &str = "aws/lambda/";

pub struct DiscardedObjects {
    calls: SignedCalls,
    bucket: String,
}

pub struct DiscardedObject {
    pub key: String,
    pub content: Result<DiscardedBatch, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiscardedBatch {
    request_context: RequestContext,
    #[serde(rename = "DDBStreamBatchInfo")]
    batch: BatchInfo,
    #[serde(default)]
    payload: Value,
    /// The records in the payload; `None` if the object only has their position in the stream.
    #[serde(skip)]
    rows: Option<BatchRows>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RequestContext {
    #[serde(default)]
    function_arn: String,
    #[serde(default)]
    condition: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BatchInfo {
    pub shard_id: String,
    pub start_sequence_number: String,
    pub end_sequence_number: String,
    pub batch_size: usize,
    #[serde(default)]
    pub approximate_arrival_of_first_record: String,
    #[serde(default)]
    pub approximate_arrival_of_last_record: String,
}

impl DiscardedObject {
    fn batch_rows(&self) -> Option<&BatchRows> {
        self.content.as_ref().ok()?.rows.as_ref()
    }

    pub fn rows(&self) -> &[OutboxItem] {
        self.batch_rows().map_or(&[], |rows| &rows.rows)
    }

    /// The aggregates with new events of which the projector has not learnt, each with the number of the last one.
    pub fn changed(&self) -> &BTreeMap<AggregateKey, u64> {
        const NONE: &BTreeMap<AggregateKey, u64> = &BTreeMap::new();
        self.batch_rows().map_or(NONE, |rows| &rows.changed)
    }

    /// The number of its records that cannot be read; 1 if the object itself cannot be read.
    pub fn unreadable(&self) -> usize {
        if self.content.is_err() { 1 } else { self.batch_rows().map_or(0, |rows| rows.unreadable.len()) }
    }

    /// The order of the stream, in which numbers have up to 40 digits; objects that cannot be read come last.
    pub fn order(&self) -> impl Ord + use<> {
        let order = self.content.as_ref().map(|content| format!("{:0>40}", content.batch.start_sequence_number));
        (order.is_err(), order.ok())
    }

    /// Why its messages cannot all be sent, and what to do.
    pub fn reason_to_stay(&self) -> Option<String> {
        match &self.content {
            Err(reason) => Some(reason.clone()),
            Ok(DiscardedBatch { rows: None, batch, .. }) => {
                let BatchInfo { shard_id, start_sequence_number: start, end_sequence_number: end, .. } = batch;
                let (first, last) =
                    (&batch.approximate_arrival_of_first_record, &batch.approximate_arrival_of_last_record);
                Some(format!(
                    "it contains no records, only their position in the stream ({shard_id}, {start} to {end}), which deletes them \
                     after 24 hours; send them from the table: daybook republish, from a few minutes before {first} to a few \
                     minutes after {last}"
                ))
            }
            Ok(DiscardedBatch { rows: Some(rows), .. }) => {
                let reason = rows.unreadable.first()?;
                let count = rows.unreadable.len();
                Some(format!("{count} of its records cannot be read: {reason}; compare them with daybook verify"))
            }
        }
    }

    fn by_aggregate(&self) -> BTreeMap<String, usize> {
        let mut messages = BTreeMap::new();
        for row in self.rows() {
            *messages.entry(partition_name(&row.pk)).or_default() += 1;
        }
        messages
    }

    pub fn json(&self) -> Value {
        let key = &self.key;
        match &self.content {
            Err(reason) => json!({"object": key, "unreadable": reason}),
            Ok(DiscardedBatch { request_context, batch, .. }) => json!({
                "object": key, "function": request_context.function(), "condition": request_context.condition, "records": batch.batch_size,
                "from": batch.approximate_arrival_of_first_record, "to": batch.approximate_arrival_of_last_record,
                "messages": self.rows().len(), "aggregates": self.by_aggregate(), "changed": self.changed().len(),
                "left": self.reason_to_stay(),
            }),
        }
    }
}

impl fmt::Display for DiscardedObject {
    /// `<key> stream-relay RecordAgeExceeded: 3 records of 2026-…Z to 2026-…Z; messages: account/123 2, todo/1 1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        match &self.content {
            Err(reason) => write!(f, "{key} is unreadable: {reason}"),
            Ok(DiscardedBatch { request_context, batch, .. }) => {
                let (function, condition) = (request_context.function(), &request_context.condition);
                let BatchInfo { batch_size, approximate_arrival_of_first_record: first, .. } = batch;
                let last = &batch.approximate_arrival_of_last_record;
                write!(f, "{key} {function} {condition}: {batch_size} records of {first} to {last}; messages: ")?;
                let messages = self.by_aggregate().into_iter().map(|(aggregate, count)| format!("{aggregate} {count}"));
                let messages: Vec<_> = messages.collect();
                f.write_str(if messages.is_empty() { "none".to_owned() } else { messages.join(", ") }.as_str())?;
                if !self.changed().is_empty() {
                    write!(f, "; changed aggregates: {}", self.changed().len())?;
                }
                self.reason_to_stay().map_or(Ok(()), |reason| write!(f, "; {reason}"))
            }
        }
    }
}

impl DiscardedObjects {
    pub async fn connect(environment: &Environment, bucket: String) -> Result<Self, OperatorError> {
        Ok(Self { calls: SignedCalls::connect(environment, S3).await?, bucket })
    }

    pub async fn keys(&self) -> Result<Vec<String>, OperatorError> {
        let (mut keys, mut token) = (Vec::new(), None);
        loop {
            let after =
                token.map(|token: String| format!("&continuation-token={}", utf8_percent_encode(&token, VALUE)));
            let prefix = utf8_percent_encode(PREFIX, VALUE);
            let path = format!("/{}?list-type=2&prefix={prefix}{}", self.bucket, after.unwrap_or_default());
            let page = self.calls.text("GET", &path).await?;
            let found = texts(&page, &["Key", "NextContinuationToken"]);
            token = None;
            for (name, text) in found.map_err(|error| self.calls.failed(error.to_string()))? {
                match name {
                    "Key" => keys.push(text),
                    _ => token = Some(text),
                }
            }
            if token.is_none() {
                return Ok(keys);
            }
        }
    }

    pub async fn read(&self, key: &str) -> Result<DiscardedObject, OperatorError> {
        let text = self.calls.text("GET", &self.path(key)).await?;
        Ok(DiscardedObject { key: key.to_owned(), content: DiscardedBatch::read(&text) })
    }

    pub async fn delete(&self, key: &str) -> Result<(), OperatorError> {
        self.calls.text("DELETE", &self.path(key)).await.map(drop)
    }

    fn path(&self, key: &str) -> String {
        format!("/{}/{}", self.bucket, utf8_percent_encode(key, KEY))
    }
}

impl RequestContext {
    fn function(&self) -> &str {
        let name = self.function_arn.split(":function:").last().unwrap_or_default();
        name.split(':').next().unwrap_or_default()
    }
}

impl DiscardedBatch {
    fn read(text: &str) -> Result<Self, String> {
        let not_one = |error: serde_json::Error| format!("not an invocation record of a DynamoDB stream: {error}");
        let mut this: Self = serde_json::from_str(text).map_err(not_one)?;
        // The payload is the event of the function, as a text.
        let payload = match this.payload.take() {
            Value::Null => return Ok(this),
            Value::String(text) => text,
            json => json.to_string(),
        };
        let batch = serde_json::from_str::<StreamBatch>(&payload)
            .map_err(|error| format!("its payload is not a batch of stream records: {error}"))?;
        this.rows = Some(BatchRows::of(&batch));
        Ok(this)
    }
}
