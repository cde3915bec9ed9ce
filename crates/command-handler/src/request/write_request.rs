//! A request that writes, with its headers and its body parsed, and its identity, by which a repetition is recognised.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use daybook_decider::{Caller, Json, Meta};
use daybook_event_store::IdempotencyKey;
use percent_encoding::percent_decode_str;
use schemars::JsonSchema;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::body::canonical;
use super::bounds::Bounds;
use super::parameters::{QueryParameters, only_value, visible_text};
use super::{RequestCaller, body, caller, trace};
use crate::api::Api;
use crate::etag::IfMatch;
use crate::problem::{self, Problem};

/// Maximum characters of an `Idempotency-Key`.
const MAX_IDEMPOTENCY_KEY: usize = 255;

pub(crate) struct WriteRequest {
    pub(crate) if_match: Option<IfMatch>,
    /// Whether to decide on a state that is folded from the first event.
    pub(crate) rebuild: bool,
    pub(crate) caller: Caller,
    /// The sender of the request and the ids that it belongs to, as events record them.
    pub(crate) meta: Meta,
    /// The time until which its append is attempted.
    pub(crate) deadline: Instant,
    /// The identity under which the response is stored, if it has an `Idempotency-Key`.
    pub(crate) identity: Option<RequestIdentity>,
    /// JSON; `{}` if the request has no body.
    pub(crate) body: Json,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WriteQuery {
    /// Whether to decide on a state that is folded from the first event, whatever caches and snapshots hold.
    #[serde(default)]
    rebuild: bool,
}

/// The key of a request, and the digest that distinguishes the request from others under the same key.
///
/// The digest covers method, path, `If-Match`, principal and body. It leaves out the query: `rebuild=true` changes how the
/// state is read, and not what the request means, so a repetition with or without it is the same request.
pub(crate) struct RequestIdentity {
    key: String,
    digest: String,
    principal: String,
}

impl FromRequest<Api> for WriteRequest {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<Self, Problem> {
        let (mut parts, payload) = request.into_parts();
        let QueryParameters(WriteQuery { rebuild }) = QueryParameters::from_request_parts(&mut parts, api).await?;
        let Ok(RequestCaller(caller)) = RequestCaller::from_request_parts(&mut parts, api).await;
        let if_match = if_match(&parts.headers)?;
        if parts.headers.contains_key(header::IF_NONE_MATCH) {
            let expected =
                "left out of a write: a creation never overwrites, and a change names its version by If-Match";
            return Err(problem::bad_header("If-None-Match", expected));
        }
        let bounds = Bounds::of(&parts.extensions);
        let meta = meta(&parts, &bounds, &caller, api)?;
        let mut payload = Request::new(payload);
        // The extensions contain the limit of the payload.
        *payload.extensions_mut() = std::mem::take(&mut parts.extensions);
        let bytes = Bytes::from_request(payload, api).await.map_err(|rejection| body::problem_of(&rejection))?;
        let body = if bytes.is_empty() {
            Json::empty_object()
        } else if is_json(&parts.headers)? {
            body::read(&bytes)?
        } else {
            return Err(Problem::of(&problem::NOT_JSON));
        };
        let identity = RequestIdentity::read(&parts, if_match, &caller, &body)?;
        Ok(Self { if_match, rebuild, caller, meta, deadline: bounds.append_until(), identity, body })
    }
}

fn meta(parts: &Parts, bounds: &Bounds, caller: &Caller, api: &Api) -> Result<Meta, Problem> {
    // Read again for its error: an id that cannot be stored is rejected.
    let correlation_id = visible_text(&parts.headers, "X-Correlation-Id")?;
    Ok(Meta {
        actor: caller.actor().map(str::to_owned),
        source_ip: caller::source_ip(parts).filter(|_| api.settings.record_source_ip),
        correlation_id: Some(correlation_id.unwrap_or_else(|| bounds.correlation_id.clone())),
        causation_id: visible_text(&parts.headers, "X-Causation-Id")?,
        traceparent: trace::traceparent(&parts.headers),
        trace_header: trace::trace_header(parts),
    })
}

impl RequestIdentity {
    /// The identity of a request, if it has a key. A request of another principal has another digest.
    fn read(parts: &Parts, if_match: Option<IfMatch>, caller: &Caller, body: &Json) -> Result<Option<Self>, Problem> {
        let Some(value) = only_value(&parts.headers, "Idempotency-Key")? else { return Ok(None) };
        let key = value.to_str().unwrap_or_default();
        // The draft of the standard puts the key in quotes; most clients do not.
        let key = key.strip_prefix('"').and_then(|key| key.strip_suffix('"')).unwrap_or(key);
        if !(1..=MAX_IDEMPOTENCY_KEY).contains(&key.len()) || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            let expected = "1 to 255 visible ASCII characters without spaces";
            return Err(problem::bad_header("Idempotency-Key", expected));
        }
        if caller.is_authenticated && caller.principal.is_none() {
            let expected = "left out: the authorizer names no caller, so the requests of two callers could not be \
                            distinguished";
            return Err(problem::bad_header("Idempotency-Key", expected));
        }
        // Canonical, so that neither white space nor the order of members changes the digest.
        let body = canonical(body).map_err(|error| Problem::new(&problem::MALFORMED_JSON, error.to_string()))?;
        let principal = caller.principal.clone().unwrap_or_default();
        let method = parts.method.as_str().as_bytes();
        let path: Vec<u8> = percent_decode_str(parts.uri.path()).collect();
        // Canonical, so that another form of the same condition does not change the digest.
        let condition = if_match.map(IfMatch::canonical).unwrap_or_default();
        let digest = digest([method, &path, condition.as_bytes(), principal.as_bytes(), body.as_bytes()]);
        Ok(Some(Self { key: key.to_owned(), digest, principal }))
    }

    /// The id of an aggregate that is created under this key: the same for every repetition, and different for each
    /// caller.
    pub(crate) fn derived_id(&self, type_name: &str) -> String {
        let mut id = digest([type_name.as_bytes(), self.principal.as_bytes(), self.key.as_bytes()]);
        id.truncate(32);
        id
    }

    pub(crate) fn store_key(&self, ttl: Duration) -> IdempotencyKey<'_> {
        IdempotencyKey { key: &self.key, digest: &self.digest, ttl }
    }
}

/// SHA-256 of the parts, each preceded by its length so that no other parts give the same bytes, in hexadecimal digits.
fn digest<const N: usize>(parts: [&[u8]; N]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.len().to_be_bytes());
        hash.update(part);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn if_match(headers: &HeaderMap) -> Result<Option<IfMatch>, Problem> {
    let Some(value) = only_value(headers, "If-Match")? else { return Ok(None) };
    let condition = IfMatch::parse(value.to_str().unwrap_or_default().trim());
    let expected = "the ETag of one version, such as \"3-1\"";
    condition.map(Some).ok_or_else(|| problem::bad_header("If-Match", expected))
}

/// Whether `Content-Type` declares the body to be JSON.
fn is_json(headers: &HeaderMap) -> Result<bool, Problem> {
    let Some(value) = only_value(headers, "Content-Type")? else { return Ok(false) };
    let value = value.to_str().unwrap_or_default();
    let essence = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    Ok(essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json")))
}
