//! The traces of `daybook dev`, as a collector receives them.

use std::collections::BTreeMap;
use std::time::Instant;

use daybook_test_support::collector::{CollectedSpan, Collector, CollectorBehaviour};
use reqwest::Response;
use serde_json::{Value, json};

use crate::daybook::Daybook;

/// The trace and the span of a caller.
const TRACE: &str = "5759e988bd862e3fe1be46a994272793";
const CALLER: &str = "53995c3f42cd8ad8";

/// A header that Lambda could set.
const OF_PLATFORM: &str = "Root=1-67891233-abcdef012345678912345678;Parent=00000000000000aa;Sampled=1";

/// Creates a to-do with these headers. Only its type may be in a trace.
async fn create(daybook: &Daybook, id: &str, headers: &[(&str, &str)]) -> Response {
    let body = json!({"id": id, "title": "private-title", "message": "private-message"});
    let request = reqwest::Client::new().post(format!("{}/todo", daybook.api)).json(&body);
    let response = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value)).send().await;
    response.unwrap()
}

fn traceparent(flag: &str) -> String {
    format!("00-{TRACE}-{CALLER}-{flag}")
}

/// The header that names a span of the caller's trace.
fn trace_header(span_id: &str) -> String {
    format!("Root=1-{}-{};Parent={span_id};Sampled=1", &TRACE[..8], &TRACE[8..])
}

fn named<'a>(spans: &'a [CollectedSpan], name: &str) -> &'a CollectedSpan {
    let mut all = spans.iter().filter(|span| span.name == name);
    let span = all.next().unwrap_or_else(|| panic!("no span {name} in {spans:#?}"));
    assert!(all.next().is_none(), "several spans {name} in {spans:#?}");
    span
}

fn attributes(span: &CollectedSpan) -> Value {
    json!(span.attributes)
}

#[tokio::test(flavor = "multi_thread")]
async fn one_command_is_one_trace_from_its_request_to_the_entry_on_the_bus() {
    let collector = Collector::start(CollectorBehaviour::Accept).await;
    let daybook = Daybook::traced(collector.url());
    let traceparent = traceparent("01");
    let headers = [
        ("traceparent", traceparent.as_str()),
        ("x-amzn-trace-id", OF_PLATFORM),
        ("x-daybook-caller", "private-caller"),
        ("x-correlation-id", "private-correlation"),
    ];
    assert_eq!(create(&daybook, "private-id", &headers).await.status(), 201);
    let entry = daybook.list("/_dev/bus", 1).await.remove(0);
    let spans = collector.spans_when(|spans| spans.iter().any(|span| span.name == "relay")).await;

    let (request, append) = (named(&spans, "POST /{type}"), named(&spans, "append"));
    let (written, waited) = (named(&spans, "DynamoDB.TransactWriteItems"), named(&spans, "stream"));
    let (publish, batch, put_events) = (named(&spans, "publish"), named(&spans, "relay"), named(&spans, "PutEvents"));
    for (span, parent) in
        [(request, CALLER), (append, &request.id), (written, &append.id), (waited, &append.id), (publish, &append.id)]
    {
        assert_eq!((span.trace_id.as_str(), span.parent_id.as_str()), (TRACE, parent), "{span:#?}");
    }
    // A batch can have messages of several traces, so it has a trace of its own.
    assert_ne!(batch.trace_id, TRACE);
    assert_eq!((batch.parent_id.as_str(), &batch.links), ("", &vec![publish.id.clone()]));
    assert_eq!((&put_events.trace_id, &put_events.parent_id), (&batch.trace_id, &batch.id));
    assert_eq!(put_events.links, batch.links);
    assert_eq!(spans.len(), 7, "{spans:#?}");

    assert_eq!(entry["traceHeader"], trace_header(&publish.id));
    assert_eq!(entry["detail"]["metadata"]["traceHeader"], trace_header(&append.id));
    assert_eq!(entry["detail"]["metadata"]["traceparent"], traceparent);

    let times = [request.time.0, append.time.0, waited.time.1, publish.time.1];
    assert!(times.is_sorted() && waited.time.0 < waited.time.1, "{spans:#?}");
    assert!(spans.iter().all(|span| span.service == "daybook-dev" && !span.is_error), "{spans:#?}");

    let expected = json!({
        "http.request.method": "POST", "http.route": "/{type}", "http.response.status_code": "201",
        "daybook.aggregate_type": "todo",
    });
    assert_eq!(attributes(request), expected);
    let expected = json!({"daybook.events": "1", "daybook.messages": "1", "daybook.write_units": 7.0});
    assert_eq!(attributes(append), expected);
    let expected = json!({
        "messaging.message.id": entry["detail"]["metadata"]["messageId"], "daybook.message_type": "TodoCreated",
        "daybook.result": "sent",
    });
    assert_eq!(attributes(publish), expected);
    assert_eq!(attributes(batch), json!({"daybook.messages": "1"}));
    assert_eq!(attributes(put_events), json!({"daybook.entries": "1", "daybook.failed_entries": "0"}));
    let sent = collector.text();
    assert!(!sent.contains("private-"), "{sent}");
}

#[tokio::test(flavor = "multi_thread")]
async fn trace_that_is_not_sampled_has_no_spans_and_unchanged_headers() {
    let collector = Collector::start(CollectorBehaviour::Accept).await;
    let daybook = Daybook::traced(collector.url());
    let (unsampled, traceparent) = (OF_PLATFORM.replace("Sampled=1", "Sampled=0"), traceparent("00"));
    create(&daybook, "1", &[("traceparent", &traceparent)]).await;
    create(&daybook, "2", &[("traceparent", &traceparent), ("x-amzn-trace-id", &unsampled)]).await;
    let expected = BTreeMap::from([("todo/1".to_owned(), Value::Null), ("todo/2".to_owned(), json!(unsampled))]);
    assert_eq!(headers_of_entries(&daybook).await, expected);

    // The next two requests are sampled: by the platform, and as the beginning of a new trace. Their spans are the only ones.
    create(&daybook, "2", &[("traceparent", &traceparent), ("x-amzn-trace-id", OF_PLATFORM)]).await;
    let of_request = |spans: &[CollectedSpan]| spans.iter().any(|span| span.name == "POST /{type}");
    let spans = collector.spans_when(of_request).await;
    let request = named(&spans, "POST /{type}");
    let parent = (request.trace_id.as_str(), request.parent_id.as_str());
    assert_eq!(parent, ("67891233abcdef012345678912345678", "00000000000000aa"));
    assert_eq!(request.attributes["http.response.status_code"], "409");
    assert_eq!(request.attributes["daybook.problem"], "already-exists");
    let known = spans.len();

    create(&daybook, "2", &[]).await;
    let spans = collector.spans_when(|spans| of_request(&spans[known..])).await;
    let other = named(&spans[known..], "POST /{type}");
    assert_eq!(other.parent_id, "");
    assert!(spans[..known].iter().all(|span| span.trace_id == request.trace_id), "{spans:#?}");
    assert!(spans[known..].iter().all(|span| span.trace_id == other.trace_id), "{spans:#?}");
}

/// The trace headers of two entries on the bus, by aggregate.
async fn headers_of_entries(daybook: &Daybook) -> BTreeMap<String, Value> {
    let entries = daybook.list("/_dev/bus", 2).await.into_iter();
    entries.map(|entry| (entry["resources"][0].as_str().unwrap().to_owned(), entry["traceHeader"].clone())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn stack_without_a_collector_passes_trace_headers_on_unchanged() {
    let daybook = Daybook::in_memory();
    let traceparent = traceparent("01");
    create(&daybook, "1", &[("traceparent", &traceparent), ("x-amzn-trace-id", OF_PLATFORM)]).await;
    create(&daybook, "2", &[("traceparent", &traceparent)]).await;
    let expected = BTreeMap::from([("todo/1".to_owned(), json!(OF_PLATFORM)), ("todo/2".to_owned(), Value::Null)]);
    assert_eq!(headers_of_entries(&daybook).await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn collector_that_fails_affects_no_command_and_no_message() {
    for behaviour in [CollectorBehaviour::Fail, CollectorBehaviour::Hang] {
        let collector = Collector::start(behaviour).await;
        let begun = Instant::now();
        let daybook = Daybook::traced(collector.url());
        send_twenty_commands(&daybook).await;
        collector.spans_when(|spans| !spans.is_empty()).await;
        let limit = 1 + begun.elapsed().as_secs() / 10;
        assert!(collector.requests() as u64 <= limit, "{behaviour:?}: {} requests", collector.requests());
    }
    // Nothing listens there.
    send_twenty_commands(&Daybook::traced("http://127.0.0.1:1")).await;
}

async fn send_twenty_commands(daybook: &Daybook) {
    for id in 0..20 {
        assert_eq!(create(daybook, &id.to_string(), &[]).await.status(), 201);
    }
    daybook.list("/_dev/bus", 20).await;
    assert_eq!(daybook.get("/_dev/dlq").await, json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_have_the_time_of_the_machine_while_the_clock_of_the_stack_is_ahead() {
    let collector = Collector::start(CollectorBehaviour::Accept).await;
    let daybook = Daybook::traced(collector.url());
    daybook.move_clock("14d").await;
    assert_eq!(create(&daybook, "1", &[("traceparent", &traceparent("01"))]).await.status(), 201);
    let spans = collector.spans_when(|spans| spans.iter().any(|span| span.name == "relay")).await;
    let (request, waited) = (named(&spans, "POST /{type}"), named(&spans, "stream"));
    assert!(waited.time.0 < request.time.0 + 60 * 60 * 1_000_000_000, "{spans:#?}");
}
