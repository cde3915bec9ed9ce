//! `GET /{type}/{id}`: the state of an aggregate, current or at an earlier version.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::on;
use daybook_decider::{Access, Json};
use daybook_event_store::{LoadOptions, LoadPolicy};
use schemars::{JsonSchema, schema_for};
use serde::{Deserialize, Serialize};

use super::authorization::require;
use super::endpoint::{AGGREGATE_PATH, Body, Endpoint, READ_PROBLEMS, Success};
use super::request_headers::{IF_NONE_MATCH, READ_CORRELATION_ID};
use crate::api::Api;
use crate::etag::{etag, is_none_match};
use crate::openapi::aggregate_type::ExampleOutcome;
use crate::openapi::schemas::{Content, ID, json_of};
use crate::problem::{self, Problem};
use crate::request::{PathParameters, QueryParameters, RequestReader};
use crate::response::json_response;

pub(super) const ENDPOINT: Endpoint = Endpoint {
    path: AGGREGATE_PATH,
    handler: |method| on(method, get),
    name: "Get",
    operation_id: "get",
    summary: "Get the state",
    description: "The current state, which includes every write before the call, or with `version` an earlier state. \
                  Earlier versions of a deleted aggregate can still be read.",
    query: Some(|| schema_for!(StateQuery)),
    request_headers: &[&[&IF_NONE_MATCH, &READ_CORRELATION_ID]],
    successes: &[
        Success {
            status: StatusCode::OK,
            description: "The state.",
            headers: &[("ETag", true)],
            body: Some(Body::Type(|of, schemas| Content {
                schema: schemas.add_response::<StateResponse<'_>>(&format!("{}Read", of.name), &[("state", &of.state)]),
                examples: of.of_creation(|ExampleOutcome { after, .. }| {
                    let state = of.model.state(after).ok()?;
                    json_of(&StateResponse { id: ID, version: after.version(), state: &state })
                }),
            })),
        },
        Success::not_modified(&[("ETag", true)]),
    ],
    problems: &[
        &[&problem::BAD_ID],
        READ_PROBLEMS,
        &[
            &problem::NOT_FOUND,
            &problem::NO_SUCH_VERSION,
            &problem::DELETED,
            &problem::TOO_LARGE,
            &problem::NEWER_RELEASE,
        ],
    ],
    ..Endpoint::READ
};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct StateQuery {
    /// The state after this many events.
    #[schemars(range(min = 1))]
    version: Option<u64>,
    /// Whether to fold the state from the first event, without caches and snapshots.
    #[serde(default)]
    rebuild: bool,
}

/// The state of an aggregate.
#[derive(Serialize, JsonSchema)]
pub(crate) struct StateResponse<'a> {
    /// The aggregate's id.
    pub(crate) id: &'a str,
    /// The number of its events, with which the `ETag` begins.
    #[schemars(range(min = 1, max = 999_999_999_999u64))]
    pub(crate) version: u64,
    /// The state after these events.
    pub(crate) state: &'a Json,
}

async fn get(
    State(api): State<Api>,
    PathParameters((type_name, id)): PathParameters<(String, String)>,
    QueryParameters(query): QueryParameters<StateQuery>,
    RequestReader(caller): RequestReader,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let (model, key) = api.aggregate(&type_name, &id)?;
    if query.rebuild {
        require(model, &caller, Access::Rebuild, Some(&id), None)?;
    }
    let store = &api.store;
    let policy = if query.rebuild { LoadPolicy::Rebuild } else { LoadPolicy::Incremental };
    let options = LoadOptions { policy, at: query.version, ..LoadOptions::default() };
    let loaded = store.load_with(model, &key, options).await?;
    if loaded.version() == 0 && query.version != Some(0) {
        return Err(Problem::of(&problem::NOT_FOUND));
    }
    if let Some(asked) = query.version.filter(|&asked| asked == 0 || asked > loaded.version()) {
        let current = store.load(model, &key).await?;
        if current.version() == 0 {
            return Err(Problem::of(&problem::NOT_FOUND));
        }
        require(model, &caller, Access::Read, Some(&id), Some(&current.folded))?;
        return Err(problem::no_such_version(asked, current.version()));
    }
    let part = require(model, &caller, Access::Read, Some(&id), Some(&loaded.folded))?.into_part();
    if model.is_deleted(&loaded.folded) {
        return Err(Problem::of(&problem::DELETED));
    }
    let etag = (header::ETAG, etag(loaded.version(), model.state_version(), part.as_ref()));
    if is_none_match(&headers, &etag.1) {
        return Ok((StatusCode::NOT_MODIFIED, [etag]).into_response());
    }
    let body = StateResponse { id: &key.id, version: loaded.version(), state: part.as_ref().unwrap_or(&*loaded.state) };
    let too_large = "the state is larger than the 6 MB of a response; read the events page by page, from /events, or \
                     an earlier version";
    let response = json_response(&body, || Problem::new(&problem::TOO_LARGE, too_large))?;
    Ok(([etag], response).into_response())
}
