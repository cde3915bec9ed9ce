//! The request to a collector: OTLP over HTTP, in its JSON form, which needs no other crate than those that each package
//! contains.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::context::TraceContext;
use super::recorder::{AttributeValue, RecordedSpan};

/// The body of a request with these spans of a service.
pub(super) fn request(service_name: &str, spans: &[RecordedSpan]) -> Value {
    let service_name = attribute(&("service.name", AttributeValue::Text(service_name.to_owned())));
    let spans: Vec<_> = spans.iter().filter_map(span).collect();
    json!({"resourceSpans": [{
        "resource": {"attributes": [service_name]},
        "scopeSpans": [{"scope": {"name": "daybook"}, "spans": spans}],
    }]})
}

fn span(recorded: &RecordedSpan) -> Option<Value> {
    let context = recorded.context?;
    let kind = match recorded.kind.as_str() {
        "server" => 2,
        "client" => 3,
        "producer" => 4,
        "consumer" => 5,
        _ => 1,
    };
    let link = |link: &TraceContext| json!({"traceId": trace_id(link), "spanId": span_id(link.span_id)});
    let parent_id = if recorded.parent_id == 0 { String::new() } else { span_id(recorded.parent_id) };
    Some(json!({
        "traceId": trace_id(&context),
        "spanId": span_id(context.span_id),
        "parentSpanId": parent_id,
        "name": recorded.name,
        "kind": kind,
        "startTimeUnixNano": nanoseconds(recorded.start),
        "endTimeUnixNano": nanoseconds(recorded.end),
        "attributes": recorded.attributes.iter().map(attribute).collect::<Vec<_>>(),
        "links": recorded.links.iter().map(link).collect::<Vec<_>>(),
        "status": if recorded.is_error { json!({"code": 2}) } else { json!({}) },
    }))
}

fn trace_id(context: &TraceContext) -> String {
    format!("{:032x}", context.trace_id)
}

fn span_id(id: u64) -> String {
    format!("{id:016x}")
}

fn attribute((key, value): &(&'static str, AttributeValue)) -> Value {
    let value = match value {
        AttributeValue::Text(text) => json!({"stringValue": text}),
        // JSON of OTLP has 64-bit integers as texts.
        AttributeValue::Number(number) => json!({"intValue": number.to_string()}),
        AttributeValue::Fraction(fraction) => json!({"doubleValue": fraction}),
    };
    json!({"key": key, "value": value})
}

fn nanoseconds(at: SystemTime) -> String {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos().to_string()
}
