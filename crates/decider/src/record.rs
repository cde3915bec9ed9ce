//! Events with their envelope, also in the form in which followers get them, and messages ready to send.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use ulid::Ulid;

use crate::json::Json;

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

/// An event for code that follows the aggregates of another type, a projection or a process: in the form that the
/// aggregate's code writes today, with its origin.
#[derive(Clone, Copy, Debug)]
pub struct FollowedEvent<'a, E> {
    /// The id of the aggregate.
    pub aggregate_id: &'a str,
    /// The number of the event in the aggregate's stream.
    pub seq_num: u64,
    /// When the event was decided.
    pub occurred_at: Timestamp,
    /// The origin of the command that caused the event.
    pub meta: &'a Meta,
    /// The event.
    pub event: &'a E,
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

/// The form in which a time is stored, sent and returned: RFC 3339 in UTC with milliseconds, so that text order is
/// time order.
pub fn timestamp(at: Timestamp) -> String {
    format!("{at:.3}")
}
