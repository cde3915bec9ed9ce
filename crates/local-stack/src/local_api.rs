//! What the API has only in the local stack: a header with the caller, so that rules about callers can be tried without an
//! authorizer, and explanations for the developer: of a 403, of a 500, and of a stored event that the edited code does not know.
//! It has no authorizer, so it admits no page of another host.

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use daybook_command_handler::gateway;
use daybook_console::is_of_this_machine;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::servers::problem;

/// Its value becomes the result of an authorizer in API Gateway's form, which the command handler then reads as in Lambda.
const HEADER: &str = "x-daybook-caller";

/// The fields of the header's JSON. Without a principal, the authorizer names nobody.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct NamedCaller {
    principal: Option<String>,
    groups: Vec<String>,
    scopes: Vec<String>,
    claims: Map<String, Value>,
}

/// Admits requests under a name of this machine, and from pages of this machine: otherwise every website that the developer opens
/// could send commands.
pub(crate) async fn admit_this_machine(request: Request, next: Next) -> Response {
    if is_of_this_machine(host_of(&request)) && is_of_this_machine(origin_of(&request)) {
        return next.run(request).await;
    }
    let detail = "the local stack admits requests to localhost, 127.0.0.1 and [::1], from programs and from pages of this machine; \
                  start it with `--host 0.0.0.0` to use it from elsewhere";
    problem(StatusCode::FORBIDDEN, "urn:daybook:problem:forbidden", "Forbidden", detail)
}

/// The name under which the client knows the stack. Every browser sends one.
fn host_of(request: &Request) -> &str {
    let host = request.headers().get(header::HOST).map(|host| host.to_str().unwrap_or_default());
    host.or(request.uri().host()).unwrap_or("localhost")
}

/// The host of the page that sends the request. A program sends no origin.
fn origin_of(request: &Request) -> &str {
    let Some(origin) = request.headers().get(header::ORIGIN) else { return "localhost" };
    let origin = origin.to_str().unwrap_or_default();
    origin.split_once("://").map_or(origin, |(_, host)| host)
}

/// Adds the result of an authorizer to a request that names a caller.
pub(crate) async fn identify(request: Request, next: Next) -> Response {
    let Some(named) = request.headers().get(HEADER) else { return next.run(request).await };
    let identified = authorizer(named).and_then(|authorizer| Ok(gateway::with_authorizer(request, &authorizer)?));
    match identified {
        Ok(request) => next.run(request).await,
        Err(error) => bad_header(&error),
    }
}

/// Converts the header to the result of an authorizer. A plain name becomes the subject of a token. JSON contains more
/// claims of a token, or is the result itself, with `jwt`, `iam` or `lambda`.
fn authorizer(named: &HeaderValue) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
    let text = std::str::from_utf8(named.as_bytes())?.trim();
    if text.is_empty() {
        return Err("it is empty".into());
    }
    let is_json = text.starts_with(['{', '[']);
    let named: Value = if is_json { serde_json::from_str(text)? } else { json!({ "principal": text }) };
    if ["jwt", "iam", "lambda"].iter().any(|kind| named.get(kind).is_some()) {
        return Ok(named);
    }
    if !named.is_object() {
        return Err("it is a list".into());
    }
    let NamedCaller { principal, groups, scopes, mut claims } = serde_json::from_value(named)?;
    claims.extend(principal.map(|principal| ("sub".to_owned(), principal.into())));
    if !groups.is_empty() {
        claims.insert("cognito:groups".to_owned(), format!("[{}]", groups.join(" ")).into());
    }
    Ok(json!({"jwt": {"claims": claims, "scopes": scopes}}))
}

fn bad_header(error: &dyn std::fmt::Display) -> Response {
    let expected = "a name, JSON with principal, groups, scopes and claims, or JSON with jwt, iam or lambda";
    let detail = format!("X-Daybook-Caller must be {expected}: {error}");
    problem(StatusCode::BAD_REQUEST, "urn:daybook:problem:bad-header", "Bad header", &detail)
}

const NEWER_RELEASE: &str = "urn:daybook:problem:newer-release";

const DETAIL: &str = "a stored event has a name or version that this code does not know; restore them in the code, or start the stack \
                      with an empty table (without the file of --data)";

/// Replaces the detail of the problem in a response by what a deployed API only logs.
pub(crate) async fn explain(request: Request, next: Next) -> Response {
    let caller = request.headers().get(HEADER).map(|named| String::from_utf8_lossy(named.as_bytes()).into_owned());
    let response = next.run(request).await;
    let detail = match (response.status(), daybook_command_handler::cause(&response)) {
        (StatusCode::FORBIDDEN, Some(checked)) => {
            format!("the caller {} may not do this: {checked}", caller.as_deref().unwrap_or("without a name"))
        }
        (StatusCode::INTERNAL_SERVER_ERROR, Some(cause)) => cause.to_owned(),
        (StatusCode::SERVICE_UNAVAILABLE, _) => DETAIL.to_owned(),
        _ => return response,
    };
    let (mut parts, body) = response.into_parts();
    let Ok(body) = to_bytes(body, usize::MAX).await else { return StatusCode::BAD_GATEWAY.into_response() };
    let problem: Value = serde_json::from_slice(&body).unwrap_or_default();
    if parts.status == StatusCode::SERVICE_UNAVAILABLE {
        if problem["type"] != NEWER_RELEASE {
            return Response::from_parts(parts, body.into());
        }
        eprintln!("daybook: {DETAIL}");
    }
    parts.headers.remove(header::CONTENT_LENGTH);
    // As a text, so that its members stay in their order.
    let member = |detail: &Value| format!("\"detail\":{detail}");
    let text = String::from_utf8_lossy(&body).replacen(&member(&problem["detail"]), &member(&detail.into()), 1);
    Response::from_parts(parts, Body::from(text))
}

#[cfg(test)]
mod tests {
    use axum::{Router, middleware};
    use tower::ServiceExt;

    use super::*;
    use crate::servers::problem;

    #[tokio::test]
    async fn websites_and_names_of_other_machines_are_not_admitted() {
        let router = Router::new().fallback(async || "").layer(middleware::from_fn(admit_this_machine));
        for (host, origin, status) in [
            ("localhost:3000", None, StatusCode::OK),
            ("127.0.0.1:3000", Some("http://localhost:5173"), StatusCode::OK),
            ("localhost:3000", Some("https://example.com"), StatusCode::FORBIDDEN),
            ("localhost:3000", Some("null"), StatusCode::FORBIDDEN),
            ("rebound.example.com:3000", None, StatusCode::FORBIDDEN),
        ] {
            let request = Request::post("/todo").header(header::HOST, host);
            let request = origin.into_iter().fold(request, |request, origin| request.header(header::ORIGIN, origin));
            let response = router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
            assert_eq!(response.status(), status, "{host} {origin:?}");
        }
    }

    #[tokio::test]
    async fn unknown_event_is_explained_and_other_problems_stay_as_they_are() {
        for (kind, expected) in [(NEWER_RELEASE, DETAIL), ("urn:daybook:problem:unavailable", "try again")] {
            let failing = async move || problem(StatusCode::SERVICE_UNAVAILABLE, kind, "A title", "try again");
            let router = Router::new().fallback(failing).layer(middleware::from_fn(explain));
            let response = router.oneshot(Request::get("/todo/1").body(Body::empty()).unwrap()).await.unwrap();
            assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
            assert_eq!(response.headers()[header::CONTENT_TYPE], "application/problem+json");
            let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
            let problem: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!((&problem["type"], &problem["detail"]), (&kind.into(), &expected.into()));
        }
    }
}
