//! The caller that a request to the local stack names, so that rules about callers can be tried without an authorizer.
//!
//! Only the local stack reads the header. Its value becomes the result of an authorizer in API Gateway's form, which
//! the command handler then reads as in Lambda.

use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use daybook_command_handler::gateway;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::servers::problem;

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
