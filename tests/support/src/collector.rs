//! A collector of traces: a server of OTLP over HTTP, in its JSON form.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::routing::post;
use daybook_local_aws::messaging::Server;
use serde_json::Value;

/// How long the spans of a process may take. It is long because the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the collector does with requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollectorBehaviour {
    /// It accepts them.
    Accept,
    /// It responds with status 500.
    Fail,
    /// It does not respond.
    Hang,
}

/// A collector that runs until it is dropped.
#[derive(Debug)]
pub struct Collector {
    server: Server,
    received: Received,
}

/// The headers and the body of each request.
type Received = Arc<Mutex<Vec<(HeaderMap, Bytes)>>>;

/// A span that the collector received.
#[derive(Clone, Debug)]
pub struct CollectedSpan {
    /// The attribute `service.name` of its resource.
    pub service: Value,
    /// Its name.
    pub name: String,
    /// Its trace, in 32 hexadecimal digits.
    pub trace_id: String,
    /// Its id, in 16 hexadecimal digits.
    pub id: String,
    /// The id of its parent; empty for the first span of a trace.
    pub parent_id: String,
    /// The ids of the spans that it links to.
    pub links: Vec<String>,
    /// When it began and ended, in nanoseconds since 1970.
    pub time: (u64, u64),
    /// Its attributes; integers are texts.
    pub attributes: BTreeMap<String, Value>,
    /// Whether its status is an error.
    pub is_error: bool,
}

impl Collector {
    /// Starts a collector on a free port of 127.0.0.1.
    pub async fn start(behaviour: CollectorBehaviour) -> Self {
        let received = Received::default();
        let receive = async move |State(received): State<Received>, headers: HeaderMap, body: Bytes| {
            received.lock().unwrap().push((headers, body));
            match behaviour {
                CollectorBehaviour::Accept => (StatusCode::OK, "{}"),
                CollectorBehaviour::Fail => (StatusCode::INTERNAL_SERVER_ERROR, ""),
                CollectorBehaviour::Hang => pending().await,
            }
        };
        let router = Router::new().route("/v1/traces", post(receive)).with_state(received.clone());
        Self { server: Server::start(router).await.unwrap(), received }
    }

    /// The URL for `OTEL_EXPORTER_OTLP_ENDPOINT`.
    pub fn url(&self) -> &str {
        self.server.url()
    }

    /// The number of requests.
    pub fn requests(&self) -> usize {
        self.received.lock().unwrap().len()
    }

    /// The headers of the first request.
    pub fn headers(&self) -> HeaderMap {
        self.received.lock().unwrap()[0].0.clone()
    }

    /// The bodies of all requests.
    pub fn text(&self) -> String {
        let received = self.received.lock().unwrap();
        received.iter().map(|(_, body)| String::from_utf8_lossy(body).into_owned()).collect()
    }

    /// All spans, in order of arrival.
    pub fn spans(&self) -> Vec<CollectedSpan> {
        let received = self.received.lock().unwrap();
        received.iter().flat_map(|(headers, body)| spans(headers, body)).collect()
    }

    /// Waits until the spans meet a condition, and returns them.
    pub async fn spans_when(&self, is_met: impl Fn(&[CollectedSpan]) -> bool) -> Vec<CollectedSpan> {
        let begun = Instant::now();
        loop {
            let spans = self.spans();
            if is_met(&spans) {
                return spans;
            }
            assert!(begun.elapsed() < PATIENCE, "{spans:#?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn spans(headers: &HeaderMap, body: &Bytes) -> Vec<CollectedSpan> {
    assert_eq!(headers[header::CONTENT_TYPE], "application/json");
    let request: Value = serde_json::from_slice(body).unwrap();
    let mut spans = Vec::new();
    for resource in list(&request["resourceSpans"]) {
        let service = attributes(&resource["resource"]["attributes"]).remove("service.name").unwrap();
        let of_resource = list(&resource["scopeSpans"]).flat_map(|scope| list(&scope["spans"]));
        spans.extend(of_resource.map(|span| collected(service.clone(), span)));
    }
    spans
}

fn collected(service: Value, span: &Value) -> CollectedSpan {
    let text = |name: &str| span[name].as_str().unwrap().to_owned();
    let hex = |name: &str, digits| {
        let id = text(name);
        assert!(id.len() == digits && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')), "{span}");
        id
    };
    CollectedSpan {
        service,
        name: text("name"),
        trace_id: hex("traceId", 32),
        id: hex("spanId", 16),
        parent_id: text("parentSpanId"),
        links: list(&span["links"]).map(|link| link["spanId"].as_str().unwrap().to_owned()).collect(),
        time: (text("startTimeUnixNano").parse().unwrap(), text("endTimeUnixNano").parse().unwrap()),
        attributes: attributes(&span["attributes"]),
        is_error: span["status"]["code"] == 2,
    }
}

fn attributes(list_of_pairs: &Value) -> BTreeMap<String, Value> {
    let value = |pair: &Value| pair["value"].as_object().unwrap().values().next().unwrap().clone();
    list(list_of_pairs).map(|pair| (pair["key"].as_str().unwrap().to_owned(), value(pair))).collect()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().unwrap().iter()
}
