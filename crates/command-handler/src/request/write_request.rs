//! A request that writes, with its headers and its body parsed.

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::header;
use axum::http::request::Parts;
use daybook_decider::{Caller, Json, Meta};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::Instant;

use super::bounds::Bounds;
use super::headers::{if_match, is_json, visible_text};
use super::idempotency::RequestIdentity;
use super::parameters::QueryParameters;
use super::{RequestCaller, body, caller, trace};
use crate::api::Api;
use crate::etag::IfMatch;
use crate::problem::{self, Problem};

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

/// The sender of the request and the ids that it belongs to, in the form that events record.
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
