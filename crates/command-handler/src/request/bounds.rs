//! The bounds of every request: the time that it may take, and its correlation id.

use std::time::Duration;

use axum::extract::Request;
use axum::http::{Extensions, HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use daybook_event_store::TransactOptions;
use jiff::Timestamp;
use lambda_http::RequestExt;
use tokio::time::{Instant, timeout_at};
use tracing::Instrument;
use ulid::Ulid;

use super::parameters::visible_text;
use super::trace;
use crate::problem::{self, log_problem};

/// How long a request may take if there is no Lambda deadline.
const DEFAULT_TIME: Duration = Duration::from_secs(10);

/// The part of a Lambda deadline that is reserved for the response.
const MARGIN: Duration = Duration::from_millis(500);

/// The part of the rest that a write reserves for its last attempt and for finding out its outcome.
const RESERVE: Duration = TransactOptions::LAST_CALLS.saturating_add(Duration::from_millis(300));

/// The part of the rest that a read which waits reserves for its last calls.
const READ_RESERVE: Duration = Duration::from_secs(1);

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const CORRELATION_ID: HeaderName = HeaderName::from_static("x-correlation-id");

#[derive(Clone, Debug)]
pub(crate) struct Bounds {
    deadline: Instant,
    /// The correlation id of the request, or a new one.
    pub(crate) correlation_id: String,
}

impl Bounds {
    pub(crate) fn of(extensions: &Extensions) -> Self {
        extensions.get().cloned().unwrap_or_else(|| Self::new(extensions, None))
    }

    fn new(extensions: &Extensions, correlation_id: Option<String>) -> Self {
        Self {
            deadline: Instant::now() + time_left(extensions),
            correlation_id: correlation_id.unwrap_or_else(|| Ulid::generate().to_string()),
        }
    }

    /// The time until which a read may wait for something.
    pub(crate) fn read_until(&self) -> Instant {
        self.deadline.checked_sub(READ_RESERVE).unwrap_or(self.deadline)
    }

    pub(crate) fn append_until(&self) -> Instant {
        self.deadline.checked_sub(RESERVE).unwrap_or(self.deadline)
    }
}

/// Responds within the time, even if DynamoDB does not, with the correlation id that is also in events and in the log.
pub(crate) async fn enforce(mut request: Request, next: Next) -> Response {
    // An id that cannot be stored is ignored here. A write, which would store it, rejects it.
    let given = visible_text(request.headers(), CORRELATION_ID.as_str()).ok().flatten();
    let bounds = Bounds::new(request.extensions(), given);
    request.extensions_mut().insert(bounds.clone());
    let (reads, has_key) = (request.method().is_safe(), request.headers().contains_key(IDEMPOTENCY_KEY));
    let (span, request) = trace::start(request);
    let outcome = timeout_at(bounds.deadline, next.run(request).instrument(span.clone())).await;
    let mut response = outcome.unwrap_or_else(|elapsed| {
        let cause = format!("no response within the time: {elapsed}");
        let problem = if reads { problem::unavailable(cause) } else { problem::outcome_unknown(None, has_key, cause) };
        problem.into_response()
    });
    trace::end(&span, &response);
    log_problem(&response, &bounds.correlation_id);
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
