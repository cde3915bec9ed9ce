//! The JSON of answers.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use daybook_decider::record::timestamp;
use daybook_decider::{Json, Meta, OutboxMessage, RecordedEvent};
use daybook_event_store::CommandResponse;
use daybook_table::AggregateKey;
use schemars::JsonSchema;
use serde::Serialize;

use crate::problem::Problem;

pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub(crate) const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");

/// A body's bytes at most: Lambda's responses hold 6 MB, headers included.
const MAX_BODY: usize = 6 * 1024 * 1024 - 16 * 1024;

/// What a ULID looks like.
pub(crate) const ULID: &str = "^[0-7][0-9A-HJKMNP-TV-Z]{25}$";

/// The state of an aggregate.
#[derive(Serialize, JsonSchema)]
pub(crate) struct StateAnswer<'a> {
    /// The aggregate's id.
    pub(crate) id: &'a str,
    /// How many events it has; also the `ETag`.
    #[schemars(range(min = 1, max = 999_999_999_999u64))]
    pub(crate) version: u64,
    /// The state after them.
    pub(crate) state: &'a Json,
}

/// What a write did.
#[derive(Serialize, JsonSchema)]
pub(crate) struct WriteAnswer<'a> {
    /// The aggregate's id.
    pub(crate) id: &'a str,
    /// How many events it has now; also the `ETag`.
    #[schemars(range(min = 1, max = 999_999_999_999u64))]
    pub(crate) version: u64,
    /// The state after them. Left out where it would make the answer larger than 6 MB or, under an `Idempotency-Key`,
    /// larger than can be kept: the write is done all the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) state: Option<&'a Json>,
    /// What the write appended; empty when there was nothing to do. Left out, with `messages`, where the answer could not
    /// be kept under an `Idempotency-Key` even without `state`: they can be read at `/events`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) events: Option<Vec<EventAnswer<'a>>>,
    /// What the world will be told of these events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) messages: Option<Vec<MessageAnswer<'a>>>,
}

/// An event as it stands in the stream.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EventAnswer<'a> {
    /// Its place in the stream, counted from 1 without a gap.
    #[schemars(range(min = 1, max = 999_999_999_999u64))]
    seq_num: u64,
    /// A ULID: unique, and sorting by time.
    #[schemars(regex(pattern = ULID))]
    event_id: String,
    /// Its name.
    event_type: &'a str,
    /// The version of the form that its data is stored in.
    event_version: u32,
    /// What happened.
    data: &'a Json,
    /// Where it came from.
    meta: &'a Meta,
    /// When it was decided: RFC 3339 in UTC, with milliseconds.
    #[schemars(extend("format" = "date-time"))]
    occurred_at: String,
}

impl<'a> From<&'a RecordedEvent> for EventAnswer<'a> {
    fn from(event: &'a RecordedEvent) -> Self {
        Self {
            seq_num: event.seq_num,
            event_id: event.event_id.to_string(),
            event_type: &event.event_type,
            event_version: event.event_version,
            data: &event.data,
            meta: &event.meta,
            occurred_at: timestamp(event.occurred_at),
        }
    }
}

/// A message that is on its way to the bus.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MessageAnswer<'a> {
    /// A ULID; the same at every delivery, so consumers deduplicate on it.
    #[schemars(regex(pattern = ULID))]
    message_id: String,
    /// Its name, the `detail-type` on the bus.
    message_type: &'a str,
    /// Its place among the aggregate's messages, counted from 1 without a gap.
    #[schemars(range(min = 1))]
    message_seq: u64,
    /// The event that it tells of.
    #[schemars(range(min = 1, max = 999_999_999_999u64))]
    seq_num: u64,
    /// What it tells.
    data: &'a Json,
}

impl<'a> From<&'a OutboxMessage> for MessageAnswer<'a> {
    fn from(message: &'a OutboxMessage) -> Self {
        Self {
            message_id: message.message_id.to_string(),
            message_type: &message.message_type,
            message_seq: message.message_seq,
            seq_num: message.seq_num,
            data: &message.data,
        }
    }
}

/// The `ETag` of a version.
pub(crate) fn etag(version: u64) -> HeaderValue {
    HeaderValue::try_from(format!("\"{version}\"")).expect("digits in quotes can stand in a header")
}

/// The response to a write, with the headers that follow from it.
pub(crate) fn write_response(
    CommandResponse { status, version, body }: CommandResponse,
    key: &AggregateKey,
) -> Result<Response, Problem> {
    let status = StatusCode::from_u16(status).map_err(|error| Problem::Internal { cause: error.to_string() })?;
    let content_type = if status.is_success() { JSON } else { PROBLEM };
    let mut response = (status, [(header::CONTENT_TYPE, content_type)], body).into_response();
    response.headers_mut().insert(header::ETAG, etag(version));
    if status == StatusCode::CREATED {
        let location = HeaderValue::try_from(format!("/{key}"));
        let location = location.map_err(|error| Problem::Internal { cause: error.to_string() })?;
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

/// A response with a JSON body, unless Lambda could not pass it on.
pub(crate) fn json(body: &impl Serialize, too_large: Problem) -> Result<Response, Problem> {
    let body = text(body)?.ok_or(too_large)?;
    Ok(([(header::CONTENT_TYPE, JSON)], body).into_response())
}

/// A JSON text; none where Lambda could not pass it on.
pub(crate) fn text(body: &impl Serialize) -> Result<Option<String>, Problem> {
    let body = serde_json::to_string(body).map_err(|fault| Problem::Internal { cause: fault.to_string() })?;
    // Lambda's own response holds the body as a JSON string, where each of these takes a character more.
    let escapes = body.bytes().filter(|byte| matches!(byte, b'"' | b'\\')).count();
    Ok((body.len() + escapes <= MAX_BODY).then_some(body))
}
