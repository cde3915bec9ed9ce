//! The span of a request, which a collector gets if there is one. It contains no id of an aggregate and nothing about the
//! caller.

use std::sync::Arc;

use axum::extract::{MatchedPath, Request};
use axum::http::Method;
use axum::response::Response;
use daybook_function_runtime::traces::{self, TraceContext};
use tracing::Span;
use tracing::field::Empty;

use super::trace::{trace_header, traceparent};
use crate::problem::Problem;

/// The name of the attribute for the aggregate type, which is known as soon as the endpoint has found the type.
pub(crate) const AGGREGATE_TYPE: &str = "daybook.aggregate_type";

/// Starts the span. It continues the trace of `traceparent` or, if that is not sampled, that of the X-Ray header, which is in
/// the rows of the command. Without either, it begins a trace.
pub(super) fn start(request: Request) -> (Span, Request) {
    // It is in the span of Lambda's runtime, which contains the request id of log lines and is not exported.
    let span = tracing::debug_span!(
        "request",
        otel.name = Empty,
        otel.kind = "server",
        otel.status_code = Empty,
        http.request.method = Empty,
        http.route = Empty,
        http.response.status_code = Empty,
        daybook.aggregate_type = Empty,
        daybook.problem = Empty,
    );
    if span.is_disabled() {
        return (span, request);
    }
    // A client can invent methods.
    let method = match *request.method() {
        Method::GET | Method::HEAD | Method::POST | Method::DELETE | Method::OPTIONS => request.method().as_str(),
        _ => "_OTHER",
    };
    span.record("http.request.method", method);
    match request.extensions().get::<MatchedPath>() {
        Some(route) => {
            span.record("http.route", route.as_str()).record("otel.name", format!("{method} {}", route.as_str()))
        }
        None => span.record("otel.name", method),
    };
    let (parts, body) = request.into_parts();
    let of_caller = traceparent(&parts.headers).and_then(|text| TraceContext::of_traceparent(&text));
    let of_platform = || TraceContext::of_trace_header(&trace_header(&parts)?);
    let sampled = of_caller.filter(TraceContext::is_sampled);
    traces::start(&span, sampled.or_else(of_platform).or(of_caller));
    (span, Request::from_parts(parts, body))
}

/// Adds the response to the span.
pub(super) fn end(span: &Span, response: &Response) {
    let status = response.status();
    span.record("http.response.status_code", status.as_u16());
    if let Some(problem) = response.extensions().get::<Arc<Problem>>() {
        span.record("daybook.problem", problem.problem_type.slug);
    }
    if status.is_server_error() {
        span.record("otel.status_code", "error");
    }
}
