//! What an accepted command becomes: events with their envelope, and messages ready to send.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use ulid::Ulid;

use crate::json::Json;

/// An event of a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedEvent {
    /// Its place in the stream, counted from 1 without a gap.
    pub seq_num: u64,
    /// Unique in the whole table, sorting by time.
    pub event_id: Ulid,
    /// The stored name.
    pub event_type: String,
    /// The version of the stored form.
    pub event_version: u32,
    /// The data, as stored.
    pub data: Json,
    /// Where it came from.
    pub meta: Meta,
    /// When it was decided.
    pub occurred_at: Timestamp,
    /// How many messages the aggregate has announced up to and including this event.
    pub message_seq: u64,
}

/// Where an event came from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    /// Who the authorizer says sent the command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// The address that the request came from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_ip: Option<String>,
    /// Kept through a whole business transaction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// The message or request that caused the command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub causation_id: Option<String>,
    /// The `traceparent` of W3C trace context.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// The trace header of the platform that carried the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_header: Option<String>,
}

/// EventBridge takes a `DetailType` of at most this many characters, and an event's name is one by default.
pub(crate) const MAX_NAME: usize = 128;

/// A message as it waits in the outbox.
#[derive(Clone, Debug, PartialEq)]
pub struct OutboxMessage {
    /// Unique; consumers deduplicate on it.
    pub message_id: Ulid,
    /// Its name, the `DetailType` on the bus.
    pub message_type: String,
    /// Its place among the aggregate's messages, counted from 1 without a gap.
    pub message_seq: u64,
    /// The event that it is about.
    pub seq_num: u64,
    /// Its place among the messages of that event, counted from 0.
    pub index: usize,
    /// Its data.
    pub data: Json,
    /// The `Detail` on the bus, ready to send: the data with its metadata.
    pub detail: Json,
    /// When its event was decided.
    pub occurred_at: Timestamp,
    /// The trace header of its event, which the bus wants beside the `Detail`.
    pub trace_header: Option<String>,
}

/// The `Detail` of a message: everything that a consumer needs to deduplicate, order, correlate, trace and read it. Not
/// the address that a command came from: the bus has other readers than the stream.
#[derive(Serialize)]
struct Detail<'a> {
    metadata: DetailMetadata<'a>,
    data: &'a Json,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DetailMetadata<'a> {
    message_id: String,
    aggregate_type: &'a str,
    aggregate_id: &'a str,
    seq_num: u64,
    message_seq: u64,
    event_id: String,
    event_version: u32,
    occurred_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    correlation_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    causation_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    actor: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_header: Option<&'a str>,
}

impl OutboxMessage {
    /// The message number `message_seq` of an aggregate, the `index`th that `event` announces.
    pub(crate) fn new(
        (aggregate_type, aggregate_id): (&str, &str),
        event: &RecordedEvent,
        (message_seq, index): (u64, usize),
        (message_id, message_type, data): (Ulid, String, Json),
    ) -> Result<Self, serde_json::Error> {
        let detail = Json::of(&Detail {
            metadata: DetailMetadata {
                message_id: message_id.to_string(),
                aggregate_type,
                aggregate_id,
                seq_num: event.seq_num,
                message_seq,
                event_id: event.event_id.to_string(),
                event_version: event.event_version,
                occurred_at: timestamp(event.occurred_at),
                correlation_id: event.meta.correlation_id.as_deref(),
                causation_id: event.meta.causation_id.as_deref(),
                actor: event.meta.actor.as_deref(),
                traceparent: event.meta.traceparent.as_deref(),
                trace_header: event.meta.trace_header.as_deref(),
            },
            data: &data,
        })?;
        Ok(Self {
            message_id,
            message_type,
            message_seq,
            seq_num: event.seq_num,
            index,
            data,
            detail,
            occurred_at: event.occurred_at,
            trace_header: event.meta.trace_header.clone(),
        })
    }
}

/// A time as it is written wherever it is stored, sent or returned: RFC 3339 in UTC with milliseconds, so that text order
/// is time order.
pub fn timestamp(at: Timestamp) -> String {
    format!("{at:.3}")
}
