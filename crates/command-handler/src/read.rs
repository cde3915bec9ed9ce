//! The state of an aggregate, now or as it was.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use daybook_event_store::{LoadOptions, LoadPolicy};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::answer::{StateAnswer, etag, json};
use crate::api::Api;
use crate::problem::Problem;
use crate::query::Parameters;
use crate::request::{Target, is_none_match};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StateQuery {
    /// The state after this many events.
    #[schemars(range(min = 1))]
    version: Option<u64>,
    /// Folded from the first event, whatever caches and snapshots hold.
    #[serde(default)]
    rebuild: bool,
}

/// `GET /{type}/{id}`.
pub(crate) async fn state(
    State(api): State<Api>,
    Target((type_name, id)): Target<(String, String)>,
    Parameters(query): Parameters<StateQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let (model, key) = api.aggregate(&type_name, &id)?;
    let store = api.store();
    let policy = if query.rebuild { LoadPolicy::Rebuild } else { LoadPolicy::Incremental };
    let options = LoadOptions { policy, at: query.version, ..LoadOptions::default() };
    let loaded = store.load_with(model, &key, options).await?;
    if loaded.version() == 0 && query.version != Some(0) {
        return Err(Problem::NotFound);
    }
    if let Some(asked) = query.version.filter(|&asked| asked == 0 || asked > loaded.version()) {
        return match store.load(model, &key).await?.version() {
            0 => Err(Problem::NotFound),
            current => Err(Problem::NoSuchVersion { asked, current }),
        };
    }
    if model.is_deleted(&loaded.folded) {
        return Err(Problem::Deleted);
    }
    let etag = (header::ETAG, etag(loaded.version()));
    if is_none_match(&headers, loaded.version()) {
        return Ok((StatusCode::NOT_MODIFIED, [etag]).into_response());
    }
    let body = StateAnswer { id: &key.id, version: loaded.version(), state: &loaded.state };
    Ok(([etag], json(&body, Problem::StateTooLarge)?).into_response())
}
