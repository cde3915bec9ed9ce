//! The exporter: sends the recorded spans to a collector by OTLP over HTTP, in its JSON form, which adds no crate to the
//! packages of the functions.

use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_smithy_http_client::Connector;
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_runtime_api::client::http::HttpConnector;
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::byte_stream::ByteStream;
use daybook_settings::{Environment, SettingError};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};
use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::registry::LookupSpan;

use super::TraceContext;
use super::recorder::{AttributeValue, EndedSpans, RecordedSpan, SpanRecorder};
use crate::errors::with_causes;

/// Maximum time that an export takes, and so the maximum delay of an invocation. It is shorter than the time that each
/// function leaves between its own deadline and Lambda's; the command handler leaves the least, 500 ms.
pub const EXPORT_LIMIT: Duration = Duration::from_millis(300);

/// The time after a failed export in which no export is attempted. A collector that does not respond therefore delays
/// one invocation in this time, and not every invocation.
pub const EXPORT_PAUSE: Duration = Duration::from_secs(10);

/// The time between two exports of a process that never freezes.
const EXPORT_INTERVAL: Duration = Duration::from_millis(200);

/// Sends the recorded spans of this process to a collector. Clones share them.
#[derive(Clone, Debug)]
pub struct SpanExporter {
    ended: EndedSpans,
    connector: Arc<Connector>,
    url: String,
    headers: Vec<(String, String)>,
    service_name: String,
    paused_until: Arc<Mutex<Option<Instant>>>,
}

impl SpanExporter {
    /// The variable for the collector's URL, to which `/v1/traces` is added. OpenTelemetry defines the names of
    /// this variable and of [`HEADERS`](Self::HEADERS).
    pub const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
    /// The variable for the headers of each request, such as a key.
    pub const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";

    /// The exporter to the collector that the environment names; `None` without one. The headers have the form
    /// `x-api-key=abc,x-tenant=b`, with percent-encoded values.
    pub fn read(environment: &Environment, service_name: &str) -> Result<Option<Self>, SettingError> {
        let Some(endpoint) = environment.optional(Self::ENDPOINT) else { return Ok(None) };
        let url = format!("{}/v1/traces", endpoint.trim_end_matches('/'));
        let is_http = url.starts_with("http://") || url.starts_with("https://");
        if !is_http || HttpRequest::empty().set_uri(url.as_str()).is_err() {
            let expected = "the http:// or https:// URL of a collector".to_owned();
            return Err(SettingError::Bad { name: Self::ENDPOINT, value: endpoint, expected });
        }
        // Trusts the certificate authorities of the platform: a collector's certificate may be from none of Amazon's.
        // They are read for HTTPS only.
        let connector = if url.starts_with("https:") {
            Connector::builder().tls_provider(Provider::Rustls(CryptoMode::Ring)).build()
        } else {
            Connector::builder().build_http()
        };
        Ok(Some(Self {
            ended: EndedSpans::default(),
            connector: Arc::new(connector),
            url,
            headers: headers(&environment.optional(Self::HEADERS).unwrap_or_default())?,
            service_name: service_name.to_owned(),
            paused_until: Arc::default(),
        }))
    }

    /// The layer of a subscriber that records the spans of the functions and of their calls to DynamoDB.
    pub fn layer<S: Subscriber + for<'a> LookupSpan<'a>>(&self) -> impl Layer<S> + use<S> {
        let is_recorded = filter_fn(|metadata| {
            let target = metadata.target();
            metadata.is_span() && (target.starts_with("daybook_") || target.starts_with("aws_sdk_dynamodb::"))
        });
        SpanRecorder(self.ended.clone()).with_filter(is_recorded.with_max_level_hint(LevelFilter::DEBUG))
    }

    /// Sends the spans that have ended. After a failure, these spans are lost, and so are those that end in the next
    /// [`EXPORT_PAUSE`].
    pub async fn flush(&self) {
        let spans = self.ended.take();
        if spans.is_empty() || self.paused_until().is_some_and(|until| Instant::now() < until) {
            return;
        }
        let sent = timeout(EXPORT_LIMIT, self.send(&spans)).await;
        let error = match sent {
            Ok(Ok(())) => return,
            Ok(Err(error)) => with_causes(&*error),
            Err(_elapsed) => format!("no response within {EXPORT_LIMIT:?}"),
        };
        *self.paused_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + EXPORT_PAUSE);
        tracing::warn!(spans = spans.len(), error, "spans were not exported");
    }

    pub async fn export_continuously(self) {
        loop {
            sleep(EXPORT_INTERVAL).await;
            self.flush().await;
        }
    }

    async fn send(&self, spans: &[RecordedSpan]) -> Result<(), Box<dyn Error + Send + Sync>> {
        let body = request(&self.service_name, spans).to_string();
        let mut request = HttpRequest::new(SdkBody::from(body));
        request.set_method("POST")?;
        request.set_uri(self.url.as_str())?;
        request.headers_mut().try_insert("content-type", "application/json")?;
        for (name, value) in &self.headers {
            request.headers_mut().try_insert(name.clone(), value.clone())?;
        }
        let response = self.connector.call(request).await?;
        let status = response.status();
        // A connection can be used again only after the whole response was read.
        ByteStream::new(response.into_body()).collect().await?;
        if status.is_success() { Ok(()) } else { Err(format!("status {}", status.as_u16()).into()) }
    }

    fn paused_until(&self) -> Option<Instant> {
        *self.paused_until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads `name=value` with commas in between. The values are secrets, so the error does not contain them.
fn headers(text: &str) -> Result<Vec<(String, String)>, SettingError> {
    let header = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        let value = percent_decode_str(value.trim()).decode_utf8().ok()?.into_owned();
        let (name, mut request) = (name.trim().to_ascii_lowercase(), HttpRequest::empty());
        request.headers_mut().try_insert(name.clone(), value.clone()).ok()?;
        (!name.is_empty()).then_some((name, value))
    };
    let pairs = text.split(',').filter(|pair| !pair.trim().is_empty());
    pairs.map(header).collect::<Option<_>>().ok_or_else(|| SettingError::Bad {
        name: SpanExporter::HEADERS,
        value: "(not shown)".to_owned(),
        expected: "name=value with commas in between, and percent-encoded values".to_owned(),
    })
}

fn request(service_name: &str, spans: &[RecordedSpan]) -> Value {
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
        // The JSON form of OTLP contains 64-bit integers as strings.
        AttributeValue::Number(number) => json!({"intValue": number.to_string()}),
        AttributeValue::Fraction(fraction) => json!({"doubleValue": fraction}),
    };
    json!({"key": key, "value": value})
}

fn nanoseconds(at: SystemTime) -> String {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos().to_string()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use tracing_subscriber::layer::SubscriberExt;
    use tracing_subscriber::util::SubscriberInitExt;

    use super::*;
    use crate::traces::start;

    fn exporter(variables: &[(&str, &str)]) -> Result<Option<SpanExporter>, SettingError> {
        SpanExporter::read(&variables.iter().copied().collect(), "tests")
    }

    fn record(name: &'static str) {
        start(&tracing::debug_span!("test", otel.name = name), None);
    }

    #[tokio::test(start_paused = true)]
    async fn collector_that_does_not_respond_delays_one_export_within_the_pause() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", silent.local_addr().unwrap());
        let exporter = exporter(&[(SpanExporter::ENDPOINT, &url)]).unwrap().unwrap();
        let _recording = tracing_subscriber::registry().with(exporter.layer()).set_default();
        for _ in 0..2 {
            let begun = Instant::now();
            for _ in 0..100 {
                record("lost");
                exporter.flush().await;
                assert_eq!(begun.elapsed(), EXPORT_LIMIT);
                assert!(exporter.ended.take().is_empty());
            }
            sleep(EXPORT_PAUSE).await;
        }
        // Nothing is sent without spans.
        let begun = Instant::now();
        exporter.flush().await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }

    #[test]
    fn spans_are_recorded_within_a_sampled_trace_up_to_a_limit() {
        let exporter = exporter(&[(SpanExporter::ENDPOINT, "http://localhost:4318/")]).unwrap().unwrap();
        assert_eq!(exporter.url, "http://localhost:4318/v1/traces");
        let _recording = tracing_subscriber::registry().with(exporter.layer()).set_default();
        let names = || exporter.ended.take().into_iter().map(|span| span.name).collect::<Vec<_>>();
        tracing::debug_span!("without a trace").in_scope(|| drop(tracing::debug_span!("within it")));
        assert_eq!(names(), [""; 0]);
        record("recorded");
        assert_eq!(names(), ["recorded"]);
        (0..3_000).for_each(|_| record("many"));
        assert_eq!(names().len(), 2_048);
    }

    #[test]
    fn bad_setting_is_an_error_that_does_not_contain_headers() {
        assert!(exporter(&[(SpanExporter::HEADERS, "a=b")]).unwrap().is_none());
        for endpoint in ["localhost:4318", "grpc://localhost", "http://two words"] {
            let error = exporter(&[(SpanExporter::ENDPOINT, endpoint)]).unwrap_err().to_string();
            assert!(error.contains(SpanExporter::ENDPOINT) && error.contains(endpoint), "{error}");
        }
        for headers in ["secret", "=secret", "two words=secret", "a=%ffsecret", "a=b,secret"] {
            let variables = [(SpanExporter::ENDPOINT, "https://collector.example"), (SpanExporter::HEADERS, headers)];
            let error = exporter(&variables).unwrap_err().to_string();
            assert!(error.contains(SpanExporter::HEADERS) && !error.contains("secret"), "{error}");
        }
    }
}
