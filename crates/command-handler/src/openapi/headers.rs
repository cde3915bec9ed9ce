//! The headers of responses.

use serde_json::{Map, Value, json};

use super::sample::{ID, ulid};
use crate::endpoints::endpoint::ResponseHeader;
use crate::problem;

pub(super) fn etag(version: u64, state_version: u32) -> String {
    format!("\"{version}-{state_version}\"")
}

/// The headers of a response, each with whether it is always present, and with the response's own examples. Every
/// response has a correlation id.
pub(super) fn headers(headers: &[(ResponseHeader, bool)], example: impl Fn(ResponseHeader) -> Option<String>) -> Value {
    let described = headers.iter().chain(&[(ResponseHeader::CorrelationId, true)]).map(|&(header, required)| {
        let (name, description, schema, general_example) = describe(header);
        let example = example(header).map_or(general_example, Value::from);
        let header = json!({"description": description, "required": required, "schema": schema, "example": example});
        (name.to_owned(), header)
    });
    described.collect::<Map<_, _>>().into()
}

/// The name, the description, the schema, and the example for responses without their own.
fn describe(header: ResponseHeader) -> (&'static str, &'static str, Value, Value) {
    let text = |pattern: &str| json!({"type": "string", "pattern": pattern});
    match header {
        ResponseHeader::ETag => (
            "ETag",
            "The version of the aggregate and the version of its state's form, in quotes. A response that an earlier \
             release stored under an `Idempotency-Key` has the version alone.",
            text(r#"^"[0-9]+(-[0-9]+)?"$"#),
            etag(problem::EXAMPLE_VERSION, 1).into(),
        ),
        ResponseHeader::RowETag => (
            "ETag",
            "A text in quotes that changes whenever the row changes.",
            text(r#"^"[0-9a-f]+(-[0-9a-f]+)*"$"#),
            "\"90f3a1c27b5e4d68\"".into(),
        ),
        ResponseHeader::Location => (
            "Location",
            "The path of the aggregate, with the base path of the API.",
            text("^(/[^/]+){2,}$"),
            format!("/todo/{ID}").into(),
        ),
        ResponseHeader::Link => (
            "Link",
            "The next page, if it already has entries. Use the address unchanged.",
            text(r#"^<[^<>]+>; rel="next"$"#),
            format!("</todo?after={}&limit=100>; rel=\"next\"", ulid(1)).into(),
        ),
        ResponseHeader::RetryAfter => {
            ("Retry-After", "How long to wait, in seconds.", json!({"type": "integer", "minimum": 1}), 1.into())
        }
        ResponseHeader::Allow => {
            ("Allow", "The methods that the resource supports.", text("^[A-Z]+(,[A-Z]+)*$"), "GET,HEAD".into())
        }
        ResponseHeader::CorrelationId => (
            "X-Correlation-Id",
            "The correlation id of the request, or a new one.",
            text("^[!-~]{1,128}$"),
            ulid(0).to_string().into(),
        ),
        ResponseHeader::IdempotencyReplayed => (
            "Idempotency-Replayed",
            "The response is the stored response to the first request with this `Idempotency-Key`; this request \
             appended nothing.",
            json!({"type": "string", "const": "true"}),
            "true".into(),
        ),
    }
}
