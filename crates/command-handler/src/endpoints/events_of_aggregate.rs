//! `GET /{type}/{id}/events`: the events of an aggregate, in order.

use axum::extract::State;
use axum::http::Method;
use axum::response::Response;
use axum::routing::on;
use schemars::{JsonSchema, schema_for};
use serde::{Deserialize, Serialize};

use super::authorization::require_events;
use super::endpoint::{Endpoint, Success};
use super::page::{MAX_LIMIT, checked_limit, default_limit, page};
use super::request_headers::READ_CORRELATION_ID;
use crate::api::Api;
use crate::problem::{self, Problem};
use crate::request::{PathParameters, QueryParameters, RequestCaller};
use crate::response::EventJson;

pub(super) const ENDPOINT: Endpoint = Endpoint {
    method: Method::GET,
    path: "/{type}/{id}/events",
    handler: |method| on(method, events_of_aggregate),
    name: "Events",
    operation_id: "eventsOf",
    command: None,
    summary: "Read its events",
    description: "The stored events in order, from the first event or after a number; also those of a deleted \
                  aggregate. `Link` is the next page; the last page has none.",
    query: Some(|| schema_for!(EventsQuery)),
    request_headers: &[&[&READ_CORRELATION_ID]],
    request_body: None,
    successes: &[Success::EventPage],
    problems: &[&[
        &problem::BAD_ID,
        &problem::BAD_QUERY,
        &problem::FORBIDDEN,
        &problem::NOT_FOUND,
        &problem::INTERNAL,
        &problem::UNAVAILABLE,
        &problem::NEWER_RELEASE,
    ]],
};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct EventsQuery {
    /// The `seqNum` that the page comes after.
    #[serde(default)]
    after: u64,
    /// The maximum number of entries; a page of large entries has fewer.
    #[schemars(range(min = 1, max = MAX_LIMIT))]
    #[serde(default = "default_limit")]
    limit: usize,
}

/// Events of one aggregate, in order.
#[derive(Serialize, JsonSchema)]
pub(crate) struct EventPage<'a> {
    /// The aggregate's id.
    pub(crate) id: &'a str,
    /// The entries of this page.
    pub(crate) events: Vec<EventJson<'a>>,
}

async fn events_of_aggregate(
    State(api): State<Api>,
    PathParameters((type_name, id)): PathParameters<(String, String)>,
    QueryParameters(query): QueryParameters<EventsQuery>,
    RequestCaller(caller): RequestCaller,
) -> Result<Response, Problem> {
    let (model, key) = api.aggregate(&type_name, &id)?;
    let limit = checked_limit(query.limit)?;
    let shows_meta = require_events(&api.store, model, &key, &caller).await?;
    let found = api.store.events(&key, query.after, limit).await?;
    // No events after `after` is a page too, but only of an aggregate that exists.
    if found.items.is_empty() && (query.after == 0 || api.store.events(&key, 0, 1).await?.items.is_empty()) {
        return Err(problem::not_found());
    }
    let events = found.items.iter().map(|event| EventJson::of(event, shows_meta));
    let body = EventPage { id: &key.id, events: events.collect() };
    page(&body, found.next.map(|after| format!("/{key}/events?after={after}&limit={limit}")))
}
