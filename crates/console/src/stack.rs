//! Calls to the HTTP interface of the stack.

use std::fmt;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;
use tower::ServiceExt;

/// Maximum bytes of a response.
const MAX_RESPONSE: usize = 64 * 1024 * 1024;

/// The HTTP interface of the stack.
#[derive(Clone)]
pub(crate) struct Stack(Router);

pub(crate) struct StackResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

/// Why the stack did not return what a page needs.
#[derive(Debug)]
pub(crate) struct StackError(String);

impl fmt::Display for StackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether faults are in a value that has the form of `/_dev/faults`: lists of faults by name, some of them in objects.
pub(crate) fn contains_faults(value: &Value) -> bool {
    match value {
        Value::Array(faults) => !faults.is_empty(),
        Value::Object(members) => members.values().any(contains_faults),
        _ => false,
    }
}

/// The clock of the local stack.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StackClock {
    /// How far it is ahead of the machine's clock.
    pub(crate) ahead_by: String,
    pub(crate) ahead_by_seconds: u64,
}

/// A part of the messages on the bus.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BusPart {
    /// The last ones, in order of arrival.
    pub(crate) messages: Vec<BusMessage>,
    /// The number of all that match, from the position `searched_from` on.
    pub(crate) matching: usize,
    /// The first position that was compared with the query.
    #[serde(default)]
    pub(crate) searched_from: usize,
    /// The position of the last message of all.
    pub(crate) last: usize,
}

/// A message that the bus accepted.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BusMessage {
    /// Its position among all messages, counted from 1.
    pub(crate) position: usize,
    /// In milliseconds since 1970.
    pub(crate) accepted_at: Option<i64>,
    pub(crate) detail_type: String,
    pub(crate) resources: Vec<String>,
    /// JSON.
    pub(crate) detail: String,
    /// What became of it in the queues of rules, if that is known.
    #[serde(default)]
    pub(crate) targets: Vec<MessageTarget>,
}

/// What became of a message in the queue of a rule. Times are in milliseconds since 1970.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MessageTarget {
    pub(crate) queue: String,
    pub(crate) sent_at: i64,
    pub(crate) receives: u32,
    pub(crate) first_received_at: Option<i64>,
    pub(crate) ended_at: Option<i64>,
    pub(crate) outcome: Option<TargetOutcome>,
}

/// How a message has left the queue of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum TargetOutcome {
    /// The consumer has deleted it.
    Processed,
    /// It is in the dead-letter queue of the rule.
    DeadLettered,
}

/// What the relay adds to each message.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct MessageMetadata {
    pub(crate) message_id: String,
    pub(crate) aggregate_type: String,
    pub(crate) aggregate_id: String,
    pub(crate) seq_num: u64,
    pub(crate) event_id: String,
    pub(crate) occurred_at: String,
    pub(crate) correlation_id: Option<String>,
    pub(crate) causation_id: Option<String>,
    pub(crate) actor: Option<String>,
}

impl MessageMetadata {
    /// The metadata in the detail of a message.
    pub(crate) fn of_detail(detail: &str) -> Self {
        #[derive(Deserialize)]
        struct Detail {
            metadata: MessageMetadata,
        }
        serde_json::from_str::<Detail>(detail).map(|detail| detail.metadata).unwrap_or_default()
    }
}

/// A message that is in a dead-letter queue.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct QueuedDeadLetter {
    /// The queue's id of it.
    pub(crate) id: String,
    pub(crate) queue_url: String,
    /// In milliseconds since 1970.
    pub(crate) sent_at: i64,
    pub(crate) body: String,
}

impl QueuedDeadLetter {
    /// The name of the queue.
    pub(crate) fn queue(&self) -> &str {
        self.queue_url.rsplit(['/', ':']).next().unwrap_or_default()
    }

    /// What the relay wrote about a message that it could not send. Every member is empty for a message of another
    /// sender.
    pub(crate) fn content(&self) -> DeadLetterContent {
        serde_json::from_str(&self.body).unwrap_or_default()
    }

    /// The message in an event that the bus sent to the queue of a rule; `None` for other bodies.
    pub(crate) fn message_of_event(&self) -> Option<DeadOutboxRow> {
        #[derive(Deserialize)]
        #[serde(rename_all = "kebab-case")]
        struct BusEvent<'a> {
            detail_type: String,
            #[serde(borrow)]
            detail: &'a RawValue,
        }
        let BusEvent { detail_type, detail } = serde_json::from_str(&self.body).ok()?;
        let message_id = MessageMetadata::of_detail(detail.get()).message_id;
        Some(DeadOutboxRow { message_id, message_type: detail_type, detail: detail.get().to_owned() })
    }
}

/// The body of a dead-letter message of the relay.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DeadLetterContent {
    pub(crate) message: Option<DeadOutboxRow>,
    pub(crate) error: Option<DeadLetterError>,
    pub(crate) attempts: u32,
}

/// The outbox row of a message that could not be sent.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DeadOutboxRow {
    pub(crate) message_id: String,
    pub(crate) message_type: String,
    pub(crate) detail: String,
}

/// Why a message could not be sent.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct DeadLetterError {
    pub(crate) code: String,
    #[serde(alias = "message")]
    pub(crate) text: String,
}

impl Stack {
    pub(crate) fn new(router: Router) -> Self {
        Self(router)
    }

    /// The body of a response to GET.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, StackError> {
        let response = self.send(Method::GET, path, &[], None).await?;
        response.read(path)
    }

    /// The messages on the bus that the query selects.
    pub(crate) async fn bus(&self, query: &[(&str, &str)]) -> Result<BusPart, StackError> {
        self.get(&crate::paths::with_query("/_dev/messages", query)).await
    }

    /// The messages in dead-letter queues.
    pub(crate) async fn dead_letters(&self) -> Result<Vec<QueuedDeadLetter>, StackError> {
        self.get("/_dev/dlq/messages").await
    }

    /// The response to any request.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Result<StackResponse, StackError> {
        let failed = |error: &dyn fmt::Display| StackError(format!("{path} of the stack cannot be called: {error}"));
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = match body {
            Some(body) => {
                request = request.header(header::CONTENT_TYPE, "application/json");
                Body::from(body.to_string())
            }
            None => Body::empty(),
        };
        let request = request.body(body).map_err(|error| failed(&error))?;
        let response = self.0.clone().oneshot(request).await.map_err(|error| failed(&error))?;
        let (parts, body) = response.into_parts();
        let body = to_bytes(body, MAX_RESPONSE).await.map_err(|error| failed(&error))?;
        let body = String::from_utf8_lossy(&body).into_owned();
        Ok(StackResponse { status: parts.status, headers: parts.headers, body })
    }
}

impl StackResponse {
    /// The body of a successful response.
    pub(crate) fn read<T: DeserializeOwned>(&self, path: &str) -> Result<T, StackError> {
        // The text about a service of AWS that failed is complete.
        if self.status == StatusCode::FAILED_DEPENDENCY {
            return Err(StackError(self.body.clone()));
        }
        if !self.status.is_success() {
            return Err(StackError(format!("{path} of the stack returned {}: {}", self.status, self.body)));
        }
        serde_json::from_str(&self.body).map_err(|error| StackError(format!("{path} of the stack: {error}")))
    }
}
