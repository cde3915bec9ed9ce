//! The AWS JSON protocol, which all local services share: the bodies of requests, responses and errors.

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::state::DataFileError;

/// The version that DynamoDB and SQS use.
pub const JSON_1_0: &str = "application/x-amz-json-1.0";
/// The version that EventBridge and KMS use.
pub const JSON_1_1: &str = "application/x-amz-json-1.1";

/// The service and the operation that a request names, such as `AWSEvents.PutEvents`; empty when it names none.
pub fn target(headers: &HeaderMap) -> &str {
    headers.get("x-amz-target").and_then(|target| target.to_str().ok()).unwrap_or_default()
}

pub fn error_body(code: &str, message: &str) -> Value {
    json!({ "__type": code, "message": message })
}

pub fn response(status: StatusCode, content_type: &'static str, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// A body that fails at once: the server can only close the connection, and the caller cannot know whether the call was
/// carried out.
pub fn broken_body() -> Body {
    let error = std::io::Error::other("injected fault: the connection breaks");
    Body::from_stream(futures_util::stream::once(std::future::ready(Err::<Bytes, _>(error))))
}

pub(crate) enum CallResponse {
    Json(Value),
    /// The connection breaks within the response.
    BrokenConnection,
    /// This status and text, which no service of AWS would return.
    Text(StatusCode, String),
}

/// An error that fails a whole call.
pub(crate) struct CallError {
    pub(crate) status: StatusCode,
    pub(crate) code: String,
    pub(crate) message: String,
}

impl CallError {
    pub(crate) fn bad_request(code: &str, message: &str) -> Self {
        Self { status: StatusCode::BAD_REQUEST, code: code.to_owned(), message: message.to_owned() }
    }
}

impl From<DataFileError> for CallError {
    fn from(error: DataFileError) -> Self {
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        Self { status, code: "InternalFailure".to_owned(), message: error.to_string() }
    }
}

pub(crate) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, CallError> {
    serde_json::from_slice(body).map_err(|error| CallError::bad_request("SerializationException", &error.to_string()))
}
