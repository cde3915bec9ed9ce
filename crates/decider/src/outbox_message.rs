//! The messages of the outbox: how one is made of what an aggregate announces, and its `Detail`.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde::Serialize;
use serde::de::DeserializeOwned;
use ulid::Ulid;

use crate::aggregate::Message;
use crate::json::{Json, tagged};
use crate::personal;
use crate::record::{MAX_NAME, MessageNumber, OutboxMessage, RecordedEvent, ULID, timestamp};

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

    /// Reads the message as a value of the enum that it was made of with [`Message::of`](crate::Message::of). The error
    /// says what does not fit, and where.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, String> {
        tagged::join_event(&self.message_type, &self.data)
    }

    /// The message with this number among those of an aggregate. The error is the reason why it cannot be written.
    pub(crate) fn new(
        (aggregate_type, aggregate_id): (&str, &str),
        event: &RecordedEvent,
        MessageNumber { epoch, epoch_before, message_seq, index }: MessageNumber,
        (message_id, message): (Ulid, Message),
    ) -> Result<Self, String> {
        let (message_type, data) = message.0?;
        if !(1..=MAX_NAME).contains(&message_type.chars().count()) {
            return Err(format!("the message name {message_type:?} must have 1 to {MAX_NAME} characters"));
        }
        // A message is out of reach once it is published, so it contains no personal value.
        let data = personal::referring(personal::attributed(data, (aggregate_type, aggregate_id))?);
        // A consumer must know which message is the first of an epoch. It knows that of message 1.
        let previous_epoch = (epoch_before < epoch && message_seq > 1).then_some(epoch_before);
        let detail = Detail {
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
        };
        let detail = Json::of(&detail).map_err(|error| error.to_string())?;
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
