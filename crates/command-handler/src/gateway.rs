//! Converts requests of API Gateway into HTTP requests, and responses into its form.
//!
//! An HTTP API passes on the decoded path, and the query as the client wrote it. This module encodes both, so that a path
//! means the same in Lambda as elsewhere: in a URL, a `#` in an id would end the path, and `..` would remove a segment.
//! There are two exceptions: an encoded slash arrives as an ordinary slash, and API Gateway is said to end the path at an
//! encoded question mark.
//!
//! What a client or an authorizer chooses is read leniently: an odd header or claim must not fail the invocation.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::extract::Request;
use axum::http::header::HOST;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use lambda_http::aws_lambda_events::apigw::{ApiGatewayV2httpRequest, ApiGatewayV2httpRequestContextHttpDescription};
use lambda_http::aws_lambda_events::encodings::Base64Data;
use lambda_http::request::LambdaRequest;
use lambda_http::tower::{Service, ServiceExt};
use lambda_http::{Adapter, Context, LambdaEvent, service_fn};
use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::Deserializer;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

/// The characters to encode in a segment of a path: all except those of ids ([`daybook_table::keys::is_id`]).
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'.').remove(b'_').remove(b'~').remove(b'-');

/// The characters that the query of a URI cannot contain. A percent sign stays, because the client has already encoded
/// the query.
const QUERY: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'#').add(b'<').add(b'>');

/// The maximum bytes of a path and a query. A URI can have 64 KiB. API Gateway accepts a maximum of 10 KB, which
/// encoding makes longer.
const MAX: usize = 65_000;

/// A request of API Gateway, encoded so that it is valid HTTP whatever the client sent, and the result of the authorizer.
#[derive(Debug, Deserialize)]
#[serde(from = "Event")]
pub struct ApiEvent(pub LambdaRequest, pub Option<Authorizer>);

/// The result of an authorizer, as API Gateway passes it on. The router finds it in the request's extensions.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub struct Authorizer(pub(crate) Box<RawValue>);

/// The event of an invocation, as far as it is needed. `lambda_http` expects headers of ASCII and claims that are strings,
/// so it does not read these.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    #[serde(default)]
    raw_path: Option<String>,
    raw_query_string: Option<String>,
    #[serde(default, deserialize_with = "headers")]
    headers: HeaderMap,
    body: Option<String>,
    #[serde(default)]
    is_base64_encoded: bool,
    request_context: EventContext,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EventContext {
    api_id: Option<String>,
    domain_name: Option<String>,
    stage: Option<String>,
    http: ApiGatewayV2httpRequestContextHttpDescription,
    authorizer: Option<Authorizer>,
}

impl From<Event> for ApiEvent {
    fn from(event: Event) -> Self {
        let context = event.request_context;
        let (stage, domain) = (context.stage.unwrap_or_default(), context.domain_name.unwrap_or_default());
        let mut path = path(without_stage(&event.raw_path.unwrap_or_default(), &stage, &domain));
        let mut query = query(&event.raw_query_string.unwrap_or_default());
        if path.len() + query.len() > MAX {
            // No route has this path.
            (path, query) = ("/".to_owned(), String::new());
        }
        let mut request = ApiGatewayV2httpRequest::default();
        // `lambda_http` panics on a body that is not base64, although the event says so.
        let is_base64 = |body: &String| serde_json::from_value::<Base64Data>(body.as_str().into()).is_ok();
        request.is_base64_encoded = event.is_base64_encoded && event.body.as_ref().is_some_and(is_base64);
        request.body = event.body;
        request.raw_path = Some(path);
        request.raw_query_string = Some(query);
        request.headers = event.headers;
        request.request_context.apiid = context.api_id;
        request.request_context.http = context.http;
        Self(LambdaRequest::ApiGatewayV2(request), context.authorizer)
    }
}

/// The router as a Lambda function. On managed instances, each of an environment's concurrent invocations uses a clone.
pub fn function(
    router: Router,
) -> impl Service<LambdaEvent<ApiEvent>, Response: Serialize + Send + 'static, Error = Infallible, Future: Send + 'static>
+ Clone
+ Send
+ 'static {
    service_fn(move |LambdaEvent { payload: ApiEvent(request, authorizer), context, .. }| {
        let router = router.clone().map_request(move |mut request: lambda_http::Request| {
            if let Some(authorizer) = authorizer.clone() {
                request.extensions_mut().insert(authorizer);
            }
            request
        });
        // An adapter cannot be sent between threads, but the router can, and it is always ready.
        Adapter::from(router).call(LambdaEvent::new(request, context))
    })
}

/// The function's response to an event, without Lambda's runtime. The invocation must end within `timeout`.
pub async fn respond(router: Router, event: &str, timeout: Duration) -> Result<Value, serde_json::Error> {
    let event: ApiEvent = serde_json::from_str(event)?;
    let deadline = SystemTime::now() + timeout;
    let milliseconds = deadline.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let mut context = Context::default();
    context.deadline = u64::try_from(milliseconds).unwrap_or(u64::MAX);
    match function(router).oneshot(LambdaEvent::new(event, context)).await {
        Ok(response) => serde_json::to_value(response),
        Err(never) => match never {},
    }
}

/// An HTTP request with this result of an authorizer, as if API Gateway had passed it on.
pub fn with_authorizer(mut request: Request, authorizer: &Value) -> Result<Request, serde_json::Error> {
    request.extensions_mut().insert(Authorizer(to_raw_value(authorizer)?));
    Ok(request)
}

/// The path without the stage. A path begins with the stage if the stage has a name and the API is called by its own
/// domain. If it is called by a custom domain, the path begins with the key of the API mapping instead, which is the
/// base path of the settings.
fn without_stage<'a>(path: &'a str, stage: &str, domain: &str) -> &'a str {
    let rest = path.strip_prefix('/').and_then(|path| path.strip_prefix(stage));
    let rest = rest.filter(|rest| rest.is_empty() || rest.starts_with('/'));
    rest.filter(|_| !stage.is_empty() && domain.contains(".execute-api.")).unwrap_or(path)
}

/// Encodes a literal path. Readers of URLs interpret a segment `.` or `..` even if its dots are encoded. It therefore
/// becomes the literal text `%2e` or `%2e%2e`, which is not an id either.
fn path(literal: &str) -> String {
    let segments = literal.strip_prefix('/').unwrap_or(literal).split('/');
    let mut path = String::new();
    for segment in segments {
        path.push('/');
        match segment {
            "." => path.push_str("%252e"),
            ".." => path.push_str("%252e%252e"),
            segment => path.extend(utf8_percent_encode(segment, SEGMENT)),
        }
    }
    path
}

fn query(written: &str) -> String {
    utf8_percent_encode(written, QUERY).collect()
}

/// The headers of a JSON object. A value that HTTP does not allow becomes a value that every reader rejects, because a
/// write without one of its headers could mean something else. A header whose name HTTP does not allow is dropped,
/// because nothing reads it.
fn headers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<HeaderMap, D::Error> {
    let headers = Option::<BTreeMap<String, &RawValue>>::deserialize(deserializer)?.unwrap_or_default();
    let value = |value: &RawValue| {
        let text: String = serde_json::from_str(value.get()).ok()?;
        HeaderValue::from_bytes(text.as_bytes()).ok()
    };
    let unreadable = || HeaderValue::from_bytes(&[0xff]).ok();
    let header =
        |(name, text): (String, &RawValue)| Some((HeaderName::try_from(name).ok()?, value(text).or_else(unreadable)?));
    // The host is left out: a client can name one that a URL cannot contain, and nothing reads it.
    Ok(headers.into_iter().filter_map(header).filter(|(name, _)| name != HOST).collect())
}
