//! Requests of API Gateway, made into HTTP requests.
//!
//! An HTTP API passes on the path decoded and the query as the client wrote it, and `lambda_http` makes a URL of both
//! as they stand. There a `#` in an id would end the path, `..` would climb it, and a quote in the query would end the
//! process, because no URL has one. So both are encoded first, and a path means in Lambda what it means elsewhere. The
//! exceptions are an encoded slash, which is a slash like any other by the time it comes here, and an encoded question
//! mark, at which API Gateway is said to end the path.

mod event;
mod headers;

use std::convert::Infallible;

use axum::Router;
use axum::extract::Request;
use axum::http::header::HOST;
use lambda_http::request::{LambdaRequest, RequestContext};
use lambda_http::tower::{Service, ServiceExt};
use lambda_http::{Adapter, LambdaEvent, RequestExt};
use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde_json::{Value, json};

pub use self::event::ApiEvent;

/// What stands for itself in a segment of a path is what [`daybook_table::keys::is_id`] knows, and nothing else.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'.').remove(b'_').remove(b'~').remove(b'-');

/// What the query of a URI cannot hold. A percent sign can be there: the client has encoded what it meant to.
const QUERY: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'#').add(b'<').add(b'>');

/// The maximum bytes of a path and a query. A URI has room for 64 KiB, and API Gateway takes no more than 10 KB, which
/// encoding makes longer.
const MAX: usize = 65_000;

/// The router as a Lambda function.
pub fn function(
    router: Router,
) -> impl Service<LambdaEvent<ApiEvent>, Response: Serialize, Error = Infallible, Future: Send> {
    Adapter::from(router).map_request(|LambdaEvent { payload: ApiEvent(request), context, .. }| {
        LambdaEvent::new(encoded(request), context)
    })
}

/// An HTTP request with this result of an authorizer, as if API Gateway had passed it on.
///
/// # Errors
///
/// When the result has not the form of one.
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

/// The request as one that HTTP allows, whatever it asks for.
pub fn encoded(mut request: LambdaRequest) -> LambdaRequest {
    if let LambdaRequest::ApiGatewayV2(request) = &mut request {
        // Not every host that a client can name is one that a URL has, and nothing else asks for it.
        let domain = request.request_context.domain_name.take().unwrap_or_default();
        let stage = request.request_context.stage.take().unwrap_or_default();
        let raw_path = request.raw_path.as_deref().unwrap_or_default();
        let mut path = path(without_stage(raw_path, &stage, &domain));
        let mut query = query(request.raw_query_string.as_deref().unwrap_or_default());
        if path.len() + query.len() > MAX {
            // No route is there.
            (path, query) = ("/".to_owned(), String::new());
        }
        request.raw_path = Some(path);
        request.raw_query_string = Some(query);
        request.headers.remove(HOST);
    }
    request
}

/// The path without the stage. A path has a named stage where the API is called by its own domain; by a custom domain, it
/// has the key of the API mapping instead, which is the base path of the settings.
fn without_stage<'a>(path: &'a str, stage: &str, domain: &str) -> &'a str {
    let rest = path.strip_prefix('/').and_then(|path| path.strip_prefix(stage));
    let rest = rest.filter(|rest| rest.is_empty() || rest.starts_with('/'));
    rest.filter(|_| !stage.is_empty() && domain.contains(".execute-api.")).unwrap_or(path)
}

/// A path, given literally. Where a URL is read, a segment of `.` or `..` is one even when its dots are encoded, so it
/// becomes `%2e` or `%2e%2e`, literally: that is no id either.
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

/// A query, given as the client wrote it.
fn query(written: &str) -> String {
    utf8_percent_encode(written, QUERY).collect()
}
