//! The trace of a request: the headers that name it, in the form that events record, and the span of the request, which a
//! collector gets if there is one. The span contains no id of an aggregate and nothing about the caller.

use std::sync::Arc;

use axum::extract::{MatchedPath, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, Method};
use axum::response::Response;
use daybook_function_runtime::traces::{self, TraceContext};
use daybook_table::trace::is_trace_header;
use lambda_http::RequestExt;
use tracing::Span;
use tracing::field::Empty;

use crate::problem::Problem;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const AMZN_TRACE_ID: HeaderName = HeaderName::from_static("x-amzn-trace-id");

/// The length of the part after the version: `-`, 32 digits, `-`, 16 digits, `-`, 2 digits.
const KNOWN: usize = 53;

/// `traceparent` of W3C trace context, as version 00. The additions of a later version are left out, as the standard
/// requires of readers that do not know that version.
pub(crate) fn traceparent(headers: &HeaderMap) -> Option<String> {
    let (version, rest) = only(headers, &TRACEPARENT)?.split_at_checked(2)?;
    let (known, later) = rest.split_at_checked(KNOWN)?;
    let ["", trace_id, parent_id, flags] = known.split('-').collect::<Vec<_>>()[..] else { return None };
    let is_hex = |text: &str, digits: usize| {
        text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let is_id = |text: &str, digits| is_hex(text, digits) && text.bytes().any(|byte| byte != b'0');
    let is_whole = later.is_empty() || (version != "00" && later.starts_with('-'));
    let is_valid = is_hex(version, 2) && version != "ff" && is_id(trace_id, 32) && is_id(parent_id, 16);
    (is_valid && is_hex(flags, 2) && is_whole).then(|| format!("00{known}"))
}

/// The AWS X-Ray header: that of the invocation, or else that of the request.
pub(crate) fn trace_header(parts: &Parts) -> Option<String> {
    let of_invocation = parts.extensions.lambda_context_ref().and_then(|context| context.xray_trace_id.as_deref());
    let of_request = only(&parts.headers, &AMZN_TRACE_ID);
    [of_invocation, of_request]
        .into_iter()
        .flatten()
        .map(str::trim)
        .find(|text| is_trace_header(text))
        .map(str::to_owned)
}

/// The value of a header that is sent once. If it is sent twice, it is unknown which value is right.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    if values.next().is_some() { None } else { first.to_str().ok() }
}

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

#[cfg(test)]
mod tests {
    use axum::http::{HeaderValue, Request};
    use lambda_http::Context;

    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    const OURS: &str = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1";
    const THEIRS: &str = "Root=1-67891233-abcdef012345678912345678";

    fn parents(values: &[&str]) -> Option<String> {
        traceparent(&values.iter().map(|value| (TRACEPARENT, HeaderValue::from_str(value).unwrap())).collect())
    }

    #[test]
    fn a_traceparent_is_read_as_version_00() {
        assert_eq!(parents(&[PARENT]).as_deref(), Some(PARENT));
        for later in ["01", "cc", "fe"] {
            let other = format!("{later}{}", &PARENT[2..]);
            assert_eq!(parents(&[&other]).as_deref(), Some(PARENT));
            assert_eq!(parents(&[&format!("{other}-what-comes-later")]).as_deref(), Some(PARENT));
            assert_eq!(parents(&[&format!("{other}.")]), None);
        }
    }

    #[test]
    fn a_malformed_traceparent_counts_as_none() {
        assert_eq!(parents(&[]), None);
        assert_eq!(parents(&[PARENT, PARENT]), None);
        for (from, to) in [
            ("00-", "ff-"),
            ("00-", "0-"),
            ("00-", "0x-"),
            ("0af7651916cd43dd8448eb211c80319c", "00000000000000000000000000000000"),
            ("b7ad6b7169203331", "0000000000000000"),
            ("0af7", "0AF7"),
            ("0af7", "0af"),
            ("0af7", "0a-7"),
            ("-01", "-0g"),
            ("-01", ""),
            ("-01", "-01-"),
            ("-01", "-01-00"),
            (PARENT, ""),
            (PARENT, "00"),
            (PARENT, "two words"),
        ] {
            assert_eq!(parents(&[&PARENT.replacen(from, to, 1)]), None, "{from} {to}");
        }
        let mut headers = HeaderMap::new();
        headers.insert(TRACEPARENT, HeaderValue::from_bytes(&[b'\xe9'; 55]).unwrap());
        assert_eq!(traceparent(&headers), None);
    }

    fn header(of_invocation: Option<&str>, of_request: &[&str]) -> Option<String> {
        let mut request = Request::builder();
        for value in of_request {
            request = request.header(AMZN_TRACE_ID, *value);
        }
        let mut context = Context::default();
        context.xray_trace_id = of_invocation.map(str::to_owned);
        trace_header(&request.body(()).unwrap().with_lambda_context(context).into_parts().0)
    }

    #[test]
    fn the_trace_header_of_the_invocation_is_preferred() {
        assert_eq!(header(Some(OURS), &[THEIRS]).as_deref(), Some(OURS));
        for nothing in [None, Some(""), Some("Root=1")] {
            assert_eq!(header(nothing, &[THEIRS]).as_deref(), Some(THEIRS), "{nothing:?}");
            assert_eq!(header(nothing, &[]), None);
            assert_eq!(header(nothing, &[THEIRS, THEIRS]), None);
            assert_eq!(header(nothing, &["Sampled=1"]), None);
        }
    }
}
