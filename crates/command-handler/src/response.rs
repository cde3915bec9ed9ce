//! The parts of responses: JSON within Lambda's size limit, the response to a write, and events and messages. The
//! comments on these structs and their fields are descriptions in the OpenAPI document.

use std::borrow::Cow;

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use daybook_decider::record::{ULID, timestamp};
use daybook_decider::{Json, Meta, OutboxMessage, RecordedEvent, personal};
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

pub(crate) fn json_response(body: &impl Serialize, too_large: impl FnOnce() -> Problem) -> Result<Response, Problem> {
    let body = shown(json_text(body)?.ok_or_else(too_large)?);
    Ok(([(header::CONTENT_TYPE, JSON)], body).into_response())
}

/// A body as callers see it: with personal values, as they are now.
fn shown(body: String) -> String {
    match personal::shown(&body) {
        Cow::Borrowed(_) => body,
        Cow::Owned(shown) => shown,
    }
}

/// A JSON text; `None` if it is too large for a response.
pub(crate) fn json_text(body: &impl Serialize) -> Result<Option<String>, Problem> {
    let body = serde_json::to_string(body).map_err(problem::internal)?;
    // Lambda's own response holds the body as a JSON string, in which each of these characters needs one more. JSON may
    // have line breaks and tabs between its values.
    let escapes = body.bytes().filter(|byte| matches!(byte, b'"' | b'\\' | b'\n' | b'\r' | b'\t')).count();
    Ok((body.len() + escapes <= MAX_RESPONSE).then_some(body))
}

/// The response to a write, with the headers that follow from it if it is about one aggregate.
pub(crate) fn write_response(transacted: Transacted, key: Option<&AggregateKey>) -> Result<Response, Problem> {
    let (CommandResponse { status, version, state_version, body }, is_replayed) = match transacted {
        Transacted::Decided(response) => (response, false),
        Transacted::Replayed(response) => (response, true),
    };
    let status = StatusCode::from_u16(status).map_err(problem::internal)?;
    let body = shown(body);
    let content_type = if status.is_success() { JSON } else { PROBLEM_JSON };
    let mut response = (status, [(header::CONTENT_TYPE, content_type)], body).into_response();
    let headers = response.headers_mut();
    if let Some(key) = key {
        headers.insert(header::ETAG, etag(version, state_version, None));
        if status == StatusCode::CREATED {
            headers.insert(header::LOCATION, HeaderValue::try_from(format!("/{key}")).map_err(problem::internal)?);
        }
    }
    if is_replayed {
        headers.insert(IDEMPOTENCY_REPLAYED, HeaderValue::from_static("true"));
    }
    Ok(response)
}

/// The result of a write.
#[derive(Serialize, JsonSchema)]
pub(crate) struct WriteResponse<'a> {
    /// The aggregate's id.
    pub(crate) id: &'a str,
    /// The number of its events after the write, with which the `ETag` begins.
    #[schemars(range(min = 1, max = 999_999_999_999u64))]
    pub(crate) version: u64,
    /// The state after the write. Omitted if the caller may not read the aggregate, or if the response would be larger than
    /// 6 MB or, with an `Idempotency-Key`, too large to be stored; the write is executed all the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) state: Option<Cow<'a, Json>>,
    /// The appended events; empty if nothing was appended. Omitted together with `messages` if the caller may not read the
    /// aggregate, or if the response is too large to be stored under an `Idempotency-Key` even without `state`; the events
    /// can be read at `/events`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) events: Option<Vec<EventJson<'a>>>,
    /// The messages that will be published about these events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) messages: Option<Vec<MessageJson<'a>>>,
}

#[derive(Serialize)]
pub(crate) struct JointResponse<'a> {
    /// The result for each aggregate that the request names, in its order.
    pub(crate) results: Vec<JointResult<'a>>,
}

#[derive(Serialize)]
pub(crate) struct JointResult<'a> {
    /// The aggregate, `type/id`.
    pub(crate) aggregate: String,
    #[serde(flatten)]
    pub(crate) result: WriteResponse<'a>,
}

/// A stored event.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EventJson<'a> {
    /// The number of the event within its aggregate, from 1 without a gap.
    #[schemars(range(min = 1, max = 999_999_999_999u64))]
    seq_num: u64,
    /// A ULID: unique, and sorting by time.
    #[schemars(regex(pattern = ULID))]
    event_id: String,
    /// The event type.
    event_type: &'a str,
    /// The version of the event's stored form.
    event_version: u32,
    /// The data of the event.
    data: &'a Json,
    /// The origin of the command. Omitted if the aggregate type does not show it to the caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    meta: Option<&'a Meta>,
    /// The time of the decision: RFC 3339 in UTC, with milliseconds.
    #[schemars(extend("format" = "date-time"))]
    occurred_at: String,
}

impl<'a> EventJson<'a> {
    /// An event, with its `meta` if the caller may see it.
    pub(crate) fn of(event: &'a RecordedEvent, shows_meta: bool) -> Self {
        Self {
            seq_num: event.seq_num,
            event_id: event.event_id.to_string(),
            event_type: &event.event_type,
            event_version: event.event_version,
            data: &event.data,
            meta: shows_meta.then_some(&event.meta),
            occurred_at: timestamp(event.occurred_at),
        }
    }
}

/// A message that will be published.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MessageJson<'a> {
    /// A ULID; the same at every delivery, so consumers deduplicate on it.
    #[schemars(regex(pattern = ULID))]
    message_id: String,
    /// The message type, which is the `detail-type` on the bus.
    message_type: &'a str,
    /// The number of the message within its aggregate, from 1 without a gap.
    #[schemars(range(min = 1))]
    message_seq: u64,
    /// The number of the event that the message is about.
    #[schemars(range(min = 1, max = 999_999_999_999u64))]
    seq_num: u64,
    /// The data of the message.
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
