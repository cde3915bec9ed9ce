//! What path, headers and body of a request mean.

use std::fmt;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use daybook_decider::{Json, Meta};
use lambda_http::RequestExt;
use lambda_http::aws_lambda_events::apigw::ApiGatewayV2httpRequestContext;
use lambda_http::request::RequestContext;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::body;
use crate::bounds::Bounds;
use crate::idempotency::Idempotency;
use crate::problem::Problem;
use crate::query::Parameters;
use crate::trace;

/// What a path names. A path that cannot be decoded names nothing that could exist.
pub(crate) struct Target<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Target<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Path::from_request_parts(parts, state).await {
            Ok(Path(names)) => Ok(Self(names)),
            Err(_) => Err(Problem::BadId { id: parts.uri.path().to_owned() }),
        }
    }
}

/// A request that writes: its headers understood, its body read.
pub(crate) struct WriteRequest {
    /// The version that the caller saw.
    pub(crate) if_match: Option<u64>,
    /// Whether caches and snapshots are to be passed by.
    pub(crate) rebuild: bool,
    /// Who sent it and what it belongs to.
    pub(crate) meta: Meta,
    /// Until when its append is tried.
    pub(crate) deadline: Instant,
    /// The key under which the answer is kept.
    pub(crate) idempotency: Option<Idempotency>,
    /// JSON; `{}` when there was none.
    pub(crate) body: Json,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WriteQuery {
    /// Whether to decide on a state that is folded from the first event, whatever caches and snapshots hold.
    #[serde(default)]
    rebuild: bool,
}

impl<S: Send + Sync> FromRequest<S> for WriteRequest {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let (mut parts, payload) = request.into_parts();
        let Parameters(WriteQuery { rebuild }) = Parameters::from_request_parts(&mut parts, state).await?;
        let if_match = if_match(&parts.headers)?;
        if parts.headers.contains_key(header::IF_NONE_MATCH) {
            let expected =
                "left out of a write: a creation never overwrites, and a change names its version by If-Match";
            return Err(Problem::BadHeader { name: "If-None-Match", expected });
        }
        let bounds = Bounds::of(&parts.extensions);
        let meta = meta(&parts, &bounds)?;
        let principal = principal(&parts);
        let bytes = Bytes::from_request(Request::from_parts(parts.clone(), payload), state).await?;
        let body = if bytes.is_empty() {
            Json::empty_object()
        } else if is_json(&parts.headers) {
            body::read(&bytes)?
        } else {
            return Err(Problem::NotJson);
        };
        let idempotency = Idempotency::read(&parts, principal.as_deref(), &body)?;
        Ok(Self { if_match, rebuild, meta, deadline: bounds.append_until(), idempotency, body })
    }
}

impl From<BytesRejection> for Problem {
    fn from(rejection: BytesRejection) -> Self {
        match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => Self::BodyTooLarge,
            _ => Self::MalformedJson { reason: "the body ends early".to_owned() },
        }
    }
}

/// A header that means nothing when it comes twice.
pub(crate) fn single<'a>(
    headers: &'a HeaderMap,
    key: &str,
    name: &'static str,
) -> Result<Option<&'a HeaderValue>, Problem> {
    let mut values = headers.get_all(key).iter();
    let value = values.next();
    match values.next() {
        None => Ok(value),
        Some(_) => Err(Problem::BadHeader { name, expected: "sent once" }),
    }
}

/// `If-Match`: one version, with or without quotes; `*` matches whatever is there.
fn if_match(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let Some(value) = single(headers, header::IF_MATCH.as_str(), "If-Match")? else { return Ok(None) };
    let text = value.to_str().unwrap_or_default().trim();
    if text == "*" {
        return Ok(None);
    }
    let digits = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    let version = digits.parse().ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()));
    let expected = "the ETag of one version, such as \"3\"";
    version.map(Some).ok_or(Problem::BadHeader { name: "If-Match", expected })
}

/// Whether `If-None-Match` names this version: the caller has it already.
pub(crate) fn is_none_match(headers: &HeaderMap, version: u64) -> bool {
    let tag = format!("\"{version}\"");
    headers
        .get_all(header::IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|candidate| candidate.trim().trim_start_matches("W/"))
        .any(|candidate| candidate == "*" || candidate == tag)
}

fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()) else { return false };
    let essence = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json"))
}

/// Who sent the request, as the authorizer says, and what it belongs to.
fn meta(parts: &Parts, bounds: &Bounds) -> Result<Meta, Problem> {
    let (actor, source_ip) = match gateway(parts) {
        Some(context) => {
            let authorizer = context.authorizer.as_ref();
            let iam = authorizer.and_then(|by| by.iam.as_ref()?.user_arn.clone());
            let jwt = authorizer.and_then(|by| by.jwt.as_ref()?.claims.get("sub").cloned());
            (iam.or(jwt), context.http.source_ip.clone())
        }
        None => (None, None),
    };
    // Read again for its error: what cannot be stored is refused.
    let correlation_id = token(&parts.headers, "x-correlation-id", "X-Correlation-Id")?;
    Ok(Meta {
        actor,
        source_ip,
        correlation_id: Some(correlation_id.unwrap_or_else(|| bounds.correlation_id.clone())),
        causation_id: token(&parts.headers, "x-causation-id", "X-Causation-Id")?,
        traceparent: trace::traceparent(&parts.headers),
        trace_header: trace::trace_header(parts),
    })
}

/// Whose idempotency keys these are. Of an assumed role the role, and not the session: that is another one on each machine
/// and after each login, and a retry may come from there.
fn principal(parts: &Parts) -> Option<String> {
    let authorizer = gateway(parts)?.authorizer.as_ref()?;
    let iam = authorizer.iam.as_ref().and_then(|iam| {
        let user = iam.user_id.as_deref().map(|id| match id.split_once(':') {
            Some((role, _session)) if role.starts_with("AROA") => role,
            _ => id,
        });
        user.or(iam.user_arn.as_deref()).map(str::to_owned)
    });
    iam.or_else(|| authorizer.jwt.as_ref()?.claims.get("sub").cloned())
}

fn gateway(parts: &Parts) -> Option<&ApiGatewayV2httpRequestContext> {
    match parts.request_context_ref() {
        Some(RequestContext::ApiGatewayV2(context)) => Some(context),
        _ => None,
    }
}

/// A header that is stored as it came, so it must be short and visible.
pub(crate) fn token(headers: &HeaderMap, key: &str, name: &'static str) -> Result<Option<String>, Problem> {
    let Some(value) = single(headers, key, name)? else { return Ok(None) };
    match value.to_str() {
        Ok(text) if (1..=128).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic()) => {
            Ok(Some(text.to_owned()))
        }
        _ => Err(Problem::BadHeader { name, expected: "1 to 128 visible ASCII characters without spaces" }),
    }
}

/// Takes `id` out of the body of a create, whose other fields are the command's data.
pub(crate) fn split_id(body: &Json) -> Result<(Option<String>, Json), Problem> {
    let Fields(fields) =
        body.read().map_err(|_| Problem::BadBody { reason: "the body must be an object".to_owned() })?;
    let mut id = None;
    let mut data = Vec::new();
    for (name, value) in fields {
        if name != "id" {
            let name = serde_json::to_string(&name).map_err(|fault| Problem::Internal { cause: fault.to_string() })?;
            data.push(format!("{name}:{}", value.get()));
        } else if id.is_some() {
            return Err(Problem::BadBody { reason: "duplicate field `id`".to_owned() });
        } else {
            let text = serde_json::from_str(value.get());
            id = Some(text.map_err(|_| Problem::BadBody { reason: "id must be a string".to_owned() })?);
        }
    }
    let data = Json::parse(format!("{{{}}}", data.join(",")));
    Ok((id, data.map_err(|fault| Problem::MalformedJson { reason: fault.to_string() })?))
}

/// An object's fields as they stand, repeated ones included, so that the command can refuse those.
struct Fields(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}
