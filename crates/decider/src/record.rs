//! The result of an accepted command: events with their envelope, and messages ready to send.

use jiff::Timestamp;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use ulid::Ulid;

use crate::json::{Json, tagged};

/// An event of a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedEvent {
    /// Its number in the stream, counted from 1 without a gap.
    pub seq_num: u64,
    /// Unique in the whole table, sortable by time.
    pub event_id: Ulid,
    /// The stored name.
    pub event_type: String,
    /// The version of the stored form.
    pub event_version: u32,
    /// The data, as stored.
    pub data: Json,
    /// The origin of its command.
    pub meta: Meta,
    /// When it was decided.
    pub occurred_at: Timestamp,
    /// The number of the aggregate's messages up to and including this event.
    pub message_seq: u64,
    /// The epoch of the last of these messages; 1 before the first.
    pub message_epoch: u32,
    /// The first events of other aggregates that were appended in the same transaction, each as `type/id@number`; only in the
    /// first event of an append.
    pub together: Vec<String>,
}

/// The origin of an event's command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    /// The sender of the command, as the authorizer identified it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// The source address of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_ip: Option<String>,
    /// The id that all commands and messages of one business transaction share.
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

/// Maximum characters of a name: EventBridge's limit for a `DetailType`, which an event's name is by default.
pub(crate) const MAX_NAME: usize = 128;

/// Checks the name of a claim or a deadline.
pub(crate) fn check_kebab_name(name: &str) -> Result<(), String> {
    let is_kebab = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(is_kebab) {
        return Ok(());
    }
    Err(format!("the name {name:?} must be 1 to {MAX_NAME} lower-case letters, digits and hyphens"))
}

/// The epoch of a table that was never restored.
pub const FIRST_EPOCH: u32 = 1;

/// Maximum events and messages of one decision. A transaction of the table holds 100 items, and one of them is the
/// aggregate's metadata.
pub const MAX_RECORDS: usize = 99;

/// Maximum bytes of the events and messages of one decision: the maximum of a transaction of the table.
pub const MAX_BYTES: usize = 4 * 1024 * 1024;

/// The pattern of a ULID.
pub const ULID: &str = "^[0-7][0-9A-HJKMNP-TV-Z]{25}$";

/// A message of the outbox.
#[derive(Clone, Debug, PartialEq)]
pub struct OutboxMessage {
    /// Unique; consumers deduplicate on it.
    pub message_id: Ulid,
    /// Its name, the `DetailType` on the bus.
    pub message_type: String,
    /// Its number among the aggregate's messages, counted from 1 without a gap.
    pub message_seq: u64,
    /// The number of its event.
    pub seq_num: u64,
    /// Its position among the messages of that event, counted from 0.
    pub index: usize,
    /// Its data.
    pub data: Json,
    /// The `Detail` on the bus, ready to send: the data with its metadata.
    pub detail: Json,
    /// When its event was decided.
    pub occurred_at: Timestamp,
    /// The trace header of its event, which EventBridge takes as a field beside the `Detail`.
    pub trace_header: Option<String>,
}

/// The numbers of a message.
#[derive(Clone, Copy)]
pub(crate) struct MessageNumber {
    /// The epoch in which it is decided.
    pub(crate) epoch: u32,
    /// The epoch of the message before it; that of the first message is [`FIRST_EPOCH`].
    pub(crate) epoch_before: u32,
    /// Its number among the aggregate's messages.
    pub(crate) message_seq: u64,
    /// Its position among the messages of its event.
    pub(crate) index: usize,
}

/// The `Detail` of a message: everything that a consumer needs to deduplicate, order, correlate, trace and read it. It
/// leaves out the source address of the command, because the bus has more readers than the stream.
#[derive(Serialize, JsonSchema)]
struct Detail<'a> {
    metadata: DetailMetadata<'a>,
    data: &'a Json,
}

/// The origin and the numbers of the message.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
struct DetailMetadata<'a> {
    /// A ULID; the same at every delivery, so consumers deduplicate on it.
    #[schemars(regex(pattern = ULID))]
    message_id: String,
    /// The aggregate type.
    aggregate_type: &'a str,
    /// The id of the aggregate.
    aggregate_id: &'a str,
    /// The number of the event that the message is about, and the version of the aggregate right after it.
    #[schemars(range(min = 1, max = 999_999_999_999u64))]
    seq_num: u64,
    /// The number of the message within its aggregate, from 1 without a gap.
    #[schemars(range(min = 1))]
    message_seq: u64,
    /// Rises when the table is restored. Consumers order by `epoch`, then by `messageSeq`.
    #[schemars(range(min = 1))]
    epoch: u32,
    /// The epoch of the message before it, in the first message of the aggregate in an epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32", range(min = 1))]
    previous_epoch: Option<u32>,
    /// The id of the event, a ULID.
    #[schemars(regex(pattern = ULID))]
    event_id: String,
    /// The version in which the event is stored.
    #[schemars(range(min = 1))]
    event_version: u32,
    /// The time of the decision: RFC 3339 in UTC, with milliseconds.
    #[schemars(extend("format" = "date-time"))]
    occurred_at: String,
    /// The id that all commands and messages of one business transaction share.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    correlation_id: Option<&'a str>,
    /// The message or request that caused the command.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    causation_id: Option<&'a str>,
    /// The sender of the command, as the authorizer identified it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    actor: Option<&'a str>,
    /// The `traceparent` of W3C trace context.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    traceparent: Option<&'a str>,
    /// The trace header of the platform that carried the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    trace_header: Option<&'a str>,
}

impl OutboxMessage {
    /// The JSON Schema of [`detail`](Self::detail), with any data.
    pub fn detail_schema() -> Schema {
        SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<Detail<'_>>()
    }

    /// Reads the message as a value of the enum that it was made of with [`Message::of`](crate::Message::of). The error says what
    /// does not fit, and where.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, String> {
        tagged::join_event(&self.message_type, &self.data)
    }

    /// The message with this number among those of an aggregate.
    pub(crate) fn new(
        (aggregate_type, aggregate_id): (&str, &str),
        event: &RecordedEvent,
        MessageNumber { epoch, epoch_before, message_seq, index }: MessageNumber,
        (message_id, message_type, data): (Ulid, String, Json),
    ) -> Result<Self, serde_json::Error> {
        // A consumer must know which message is the first of an epoch. It knows that of message 1.
        let previous_epoch = (epoch_before < epoch && message_seq > 1).then_some(epoch_before);
        let detail = Json::of(&Detail {
            metadata: DetailMetadata {
                message_id: message_id.to_string(),
                aggregate_type,
                aggregate_id,
                seq_num: event.seq_num,
                message_seq,
                epoch,
                previous_epoch,
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

/// The form in which a time is stored, sent and returned: RFC 3339 in UTC with milliseconds, so that text order is
/// time order.
pub fn timestamp(at: Timestamp) -> String {
    format!("{at:.3}")
}
