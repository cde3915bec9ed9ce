//! The parts of the AWS JSON protocol that all local services share.

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use serde_json::{Value, json};

/// The version that DynamoDB and SQS use.
pub const JSON_1_0: &str = "application/x-amz-json-1.0";
/// The version that EventBridge uses.
pub const JSON_1_1: &str = "application/x-amz-json-1.1";

/// The service and the operation that a request names, such as `AWSEvents.PutEvents`; empty when it names none.
pub fn target(headers: &HeaderMap) -> &str {
    headers.get("x-amz-target").and_then(|target| target.to_str().ok()).unwrap_or_default()
}

/// The body of an error response.
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
