//! What surrounds every request: the time that it may take, and the id that it is correlated by.

use std::time::Duration;

use axum::extract::Request;
use axum::http::{Extensions, HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use lambda_http::RequestExt;
use tokio::time::{Instant, timeout_at};
use ulid::Ulid;

use crate::problem::Problem;
use crate::request::token;

/// How long a request may take where no Lambda deadline says.
const DEFAULT_TIME: Duration = Duration::from_secs(10);

/// What is kept of a Lambda deadline for answering.
const MARGIN: Duration = Duration::from_millis(500);

/// What a write keeps of that for finding out what became of an append.
const RESERVE: Duration = Duration::from_millis(1500);

const CORRELATION_ID: HeaderName = HeaderName::from_static("x-correlation-id");

/// The bounds of a request.
#[derive(Clone, Debug)]
pub(crate) struct Bounds {
    deadline: Instant,
    /// The caller's, or a new one.
    pub(crate) correlation_id: String,
}

impl Bounds {
    /// Those that the layer has set.
    pub(crate) fn of(extensions: &Extensions) -> Self {
        extensions.get().cloned().unwrap_or_else(|| Self::new(extensions, None))
    }

    fn new(extensions: &Extensions, correlation_id: Option<String>) -> Self {
        Self {
            deadline: Instant::now() + time_left(extensions),
            correlation_id: correlation_id.unwrap_or_else(|| Ulid::generate().to_string()),
        }
    }

    /// Until when an append is tried.
    pub(crate) fn append_until(&self) -> Instant {
        self.deadline.checked_sub(RESERVE).unwrap_or(self.deadline)
    }
}

/// Answers within the time, whatever DynamoDB does, and tells the id by which the request is found in logs and events.
pub(crate) async fn within(mut request: Request, next: Next) -> Response {
    // One that cannot be kept is refused where it would be stored.
    let given = token(request.headers(), CORRELATION_ID.as_str(), "X-Correlation-Id").ok().flatten();
    let bounds = Bounds::new(request.extensions(), given);
    request.extensions_mut().insert(bounds.clone());
    let answered = timeout_at(bounds.deadline, next.run(request)).await;
    let mut response = answered.unwrap_or_else(|elapsed| {
        Problem::Unavailable { cause: format!("no answer within the time: {elapsed}") }.into_response()
    });
    if let Ok(correlation_id) = HeaderValue::try_from(bounds.correlation_id) {
        response.headers_mut().insert(CORRELATION_ID, correlation_id);
    }
    response
}

fn time_left(extensions: &Extensions) -> Duration {
    match extensions.lambda_context_ref() {
        Some(context) => {
            let now = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or_default();
            Duration::from_millis(context.deadline.saturating_sub(now)).saturating_sub(MARGIN)
        }
        None => DEFAULT_TIME,
    }
}
