//! The AWS JSON protocol: 1.1 as EventBridge speaks it, 1.0 as SQS does.

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use axum::routing::post;
use serde::Serialize;
use serde_json::json;

use crate::messaging::bus::Bus;
use crate::messaging::{put_events, queue, receipts, receive_message, send_message};

/// More than any request within the limits comes to, escapes and all.
const MAX_BODY: usize = 16 * 1024 * 1024;

const JSON_1_0: &str = "application/x-amz-json-1.0";
const JSON_1_1: &str = "application/x-amz-json-1.1";

/// What a call is answered when it was not refused.
pub(crate) enum Answer {
    /// 200 with this JSON.
    Json(Vec<u8>),
    /// Nothing: the connection breaks within the answer.
    Broken,
}

impl Answer {
    pub(crate) fn json(response: &impl Serialize) -> Result<Self, Refused> {
        serde_json::to_vec(response).map(Self::Json).map_err(|error| Refused::unreadable(&error))
    }
}

/// A call that failed as a whole.
#[derive(Clone, Debug)]
pub(crate) struct Refused {
    pub(crate) status: StatusCode,
    pub(crate) code: String,
    pub(crate) message: String,
}

impl Refused {
    pub(crate) fn of(code: &str, message: &str) -> Self {
        Self { status: StatusCode::BAD_REQUEST, code: code.to_owned(), message: message.to_owned() }
    }

    pub(crate) fn validation(message: &str) -> Self {
        Self::of("ValidationException", message)
    }

    pub(crate) fn unreadable(error: &serde_json::Error) -> Self {
        Self::of("SerializationException", &error.to_string())
    }
}

pub(crate) fn router(bus: Bus) -> Router {
    Router::new().route("/", post(dispatch)).layer(DefaultBodyLimit::max(MAX_BODY)).with_state(bus)
}

async fn dispatch(State(bus): State<Bus>, headers: HeaderMap, body: Bytes) -> Response<Body> {
    let target = headers.get("x-amz-target").and_then(|target| target.to_str().ok()).unwrap_or_default();
    let outcome = match target {
        "AWSEvents.PutEvents" => put_events::call(&bus, &body).await,
        "AmazonSQS.SendMessage" => send_message::call(&bus, &body).await,
        "AmazonSQS.ReceiveMessage" => receive_message::call(&bus, &body).await,
        "AmazonSQS.DeleteMessage" => receipts::delete(&bus, &body).await,
        "AmazonSQS.DeleteMessageBatch" => receipts::delete_batch(&bus, &body).await,
        "AmazonSQS.ChangeMessageVisibility" => receipts::change_visibility(&bus, &body),
        "AmazonSQS.ChangeMessageVisibilityBatch" => receipts::change_visibility_batch(&bus, &body),
        "AmazonSQS.GetQueueAttributes" => queue::attributes(&bus, &body),
        _ => Err(Refused::of("UnknownOperationException", "")),
    };
    let request_id = bus.state().new_id();
    let content_type = if target.starts_with("AmazonSQS.") { JSON_1_0 } else { JSON_1_1 };
    respond(outcome, content_type, &request_id)
}

fn respond(outcome: Result<Answer, Refused>, content_type: &'static str, request_id: &str) -> Response<Body> {
    let (status, error_type, body) = match outcome {
        Ok(Answer::Json(json)) => (StatusCode::OK, None, json.into()),
        Ok(Answer::Broken) => (StatusCode::OK, None, broken()),
        Err(Refused { status, code, message }) => {
            let body = json!({ "__type": code, "message": message }).to_string();
            (status, HeaderValue::from_str(&code).ok(), body.into())
        }
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    if let Some(error_type) = error_type {
        headers.insert("x-amzn-errortype", error_type);
    }
    if let Ok(request_id) = HeaderValue::from_str(request_id) {
        headers.insert("x-amzn-requestid", request_id);
    }
    response
}

/// A body that fails at once: the server can only close the connection.
fn broken() -> Body {
    let failure = std::io::Error::other("a broken connection was asked for");
    Body::from_stream(futures_util::stream::once(std::future::ready(Err::<Bytes, _>(failure))))
}
