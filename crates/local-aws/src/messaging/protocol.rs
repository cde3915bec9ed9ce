//! The bodies of requests, and the responses and errors of operations.

use axum::http::StatusCode;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::state::StateError;

/// The response to a call that was executed.
pub(crate) enum CallResponse {
    /// 200 with this JSON.
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

impl From<StateError> for CallError {
    fn from(error: StateError) -> Self {
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        Self { status, code: "InternalFailure".to_owned(), message: error.to_string() }
    }
}

/// Reads the body of a request.
pub(crate) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, CallError> {
    serde_json::from_slice(body).map_err(|error| CallError::bad_request("SerializationException", &error.to_string()))
}
