//! Converts requests of API Gateway into HTTP requests.
//!
//! An HTTP API passes on the decoded path, and the query as the client wrote it. `lambda_http` makes a URL of both
//! without encoding them. In this URL, a `#` in an id would end the path, `..` would remove a segment, and a quote in
//! the query would end the process, because a URL cannot contain one. So this module encodes both first, and a path
//! means the same in Lambda as elsewhere. There are two exceptions: an encoded slash arrives as an ordinary slash, and
//! API Gateway is said to end the path at an encoded question mark.

mod event;
mod headers;

use std::convert::Infallible;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::extract::Request;
use axum::http::header::HOST;
use lambda_http::aws_lambda_events::encodings::Base64Data;
use lambda_http::request::{LambdaRequest, RequestContext};
use lambda_http::tower::{Service, ServiceExt};
use lambda_http::{Adapter, Context, LambdaEvent, RequestExt, service_fn};
use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde_json::{Value, json};

pub use self::event::ApiEvent;

/// The characters to encode in a segment of a path: all except those of ids ([`daybook_table::keys::is_id`]).
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'.').remove(b'_').remove(b'~').remove(b'-');

/// The characters that the query of a URI cannot contain. A percent sign stays, because the client has already encoded
/// the query.
const QUERY: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'#').add(b'<').add(b'>');

/// The maximum bytes of a path and a query. A URI can have 64 KiB. API Gateway accepts a maximum of 10 KB, which
/// encoding makes longer.
const MAX: usize = 65_000;

/// The router as a Lambda function. On managed instances, each of an environment's concurrent invocations uses a clone.
pub fn function(
    router: Router,
) -> impl Service<LambdaEvent<ApiEvent>, Response: Serialize + Send + 'static, Error = Infallible, Future: Send + 'static>
+ Clone
+ Send
+ 'static {
    service_fn(move |LambdaEvent { payload: ApiEvent(request), context, .. }| {
        // An adapter cannot be sent between threads, but the router can, and it is always ready.
        Adapter::from(router.clone()).call(LambdaEvent::new(encoded(request), context))
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
pub fn with_authorizer(request: Request, authorizer: &Value) -> Result<Request, serde_json::Error> {
    let http = json!({"method": request.method().as_str(), "path": request.uri().path()});
    let event = json!({"requestContext": {"http": http, "authorizer": authorizer}});
    match serde_json::from_value(event)? {
        ApiEvent(LambdaRequest::ApiGatewayV2(event)) => {
            Ok(request.with_request_context(RequestContext::ApiGatewayV2(event.request_context)))
        }
        ApiEvent(_) => Ok(request),
    }
}

/// The request with its path and query encoded, so that it is valid HTTP whatever the client sent.
pub fn encoded(mut request: LambdaRequest) -> LambdaRequest {
    if let LambdaRequest::ApiGatewayV2(request) = &mut request {
        // The host is removed: a client can name one that a URL cannot contain, and nothing else reads it.
        let domain = request.request_context.domain_name.take().unwrap_or_default();
        let stage = request.request_context.stage.take().unwrap_or_default();
        let raw_path = request.raw_path.as_deref().unwrap_or_default();
        let mut path = path(without_stage(raw_path, &stage, &domain));
        let mut query = query(request.raw_query_string.as_deref().unwrap_or_default());
        if path.len() + query.len() > MAX {
            // No route has this path.
            (path, query) = ("/".to_owned(), String::new());
        }
        // `lambda_http` panics on a body that is not base64, although the event says so.
        let is_base64 = |body: &String| serde_json::from_value::<Base64Data>(body.as_str().into()).is_ok();
        request.is_base64_encoded = request.is_base64_encoded && request.body.as_ref().is_some_and(is_base64);
        request.raw_path = Some(path);
        request.raw_query_string = Some(query);
        request.headers.remove(HOST);
    }
    request
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

/// Encodes a query that the client wrote.
fn query(written: &str) -> String {
    utf8_percent_encode(written, QUERY).collect()
}
