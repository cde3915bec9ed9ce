//! What answers are made of: JSON within the size that Lambda passes on, the answer to a write, and events and
//! messages. The comments on these structs and their fields are descriptions in the OpenAPI document.

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use daybook_decider::record::timestamp;
use daybook_decider::{Json, Meta, OutboxMessage, RecordedEvent};
use daybook_event_store::{CommandResponse, Transacted};
use daybook_table::AggregateKey;
use schemars::JsonSchema;
use serde::Serialize;

use crate::etag::etag;
use crate::problem::{self, PROBLEM_JSON, Problem};

pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The maximum bytes of a body: a response of Lambda holds 6 MB, headers included.
const MAX_RESPONSE: usize = 6 * 1024 * 1024 - 16 * 1024;

const IDEMPOTENCY_REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// A response with a JSON body; the problem where that is too large.
pub(crate) fn json_response(body: &impl Serialize, too_large: impl FnOnce() -> Problem) -> Result<Response, Problem> {
    let body = json_text(body)?.ok_or_else(too_large)?;
    Ok(([(header::CONTENT_TYPE, JSON)], body).into_response())
}

/// A JSON text; none where it is too large for a response.
pub(crate) fn json_text(body: &impl Serialize) -> Result<Option<String>, Problem> {
    let body = serde_json::to_string(body).map_err(problem::internal)?;
    // Lambda's own response holds the body as a JSON string, where each of these takes a character more.
    let escapes = body.bytes().filter(|byte| matches!(byte, b'"' | b'\\')).count();
    Ok((body.len() + escapes <= MAX_RESPONSE).then_some(body))
}

/// The response to a write, with the headers that follow from it.
pub(crate) fn write_response(transacted: Transacted, key: &AggregateKey) -> Result<Response, Problem> {
    let (CommandResponse { status, version, body }, is_replayed) = match transacted {
        Transacted::Decided(response) => (response, false),
        Transacted::Replayed(response) => (response, true),
    };
    let status = StatusCode::from_u16(status).map_err(problem::internal)?;
    let content_type = if status.is_success() { JSON } else { PROBLEM_JSON };
    let mut response = (status, [(header::CONTENT_TYPE, content_type)], body).into_response();
    let headers = response.headers_mut();
    headers.insert(header::ETAG, etag(version));
    if status == StatusCode::CREATED {
        headers.insert(header::LOCATION, HeaderValue::try_from(format!("/{key}")).map_err(problem::internal)?);
    }
    if is_replayed {
        headers.insert(IDEMPOTENCY_REPLAYED, HeaderValue::from_static("true"));
    }
    Ok(response)
}

/// What a write did.
#[derive(Serialize, JsonSchema)]
pub(crate) struct WriteResponse<'a> {
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
    pub(crate) events: Option<Vec<EventJson<'a>>>,
    /// What the world will be told of these events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) messages: Option<Vec<MessageJson<'a>>>,
}

/// The pattern of a ULID.
pub(crate) const ULID: &str = "^[0-7][0-9A-HJKMNP-TV-Z]{25}$";

/// An event as it stands in the stream.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EventJson<'a> {
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

impl<'a> From<&'a RecordedEvent> for EventJson<'a> {
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
pub(crate) struct MessageJson<'a> {
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

impl<'a> From<&'a OutboxMessage> for MessageJson<'a> {
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
