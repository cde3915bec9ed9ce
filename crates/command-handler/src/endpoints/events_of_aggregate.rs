//! `GET /{type}/{id}/events`: the events of an aggregate, in order.

use axum::extract::State;
use axum::response::Response;
use axum::routing::on;
use daybook_decider::RecordedEvent;
use daybook_event_store::Page;
use schemars::{JsonSchema, schema_for};
use serde::{Deserialize, Serialize};

use super::authorization::reading;
use super::endpoint::{Body, Endpoint, READ_PROBLEMS, Success};
use super::page::{MAX_LIMIT, UnreadableJson, checked_limit, default_limit, page, report_unreadable};
use crate::api::Api;
use crate::openapi::aggregate_type::events_json;
use crate::openapi::schemas::{Content, ID, json_of};
use crate::problem::{self, Problem};
use crate::request::{PathParameters, QueryParameters, RequestReader};
use crate::response::EventJson;

pub(super) const ENDPOINT: Endpoint = Endpoint {
    path: "/{type}/{id}/events",
    handler: |method| on(method, events_of_aggregate),
    name: "Events",
    operation_id: "eventsOf",
    summary: "Read its events",
    description: "The stored events in order, from the first event or after a number; also those of a deleted \
                  aggregate. They include every write before the call. `Link` is the next page, if there is one \
                  already; request later events with `cursor` as `after`.",
    query: Some(|| schema_for!(EventsQuery)),
    successes: &[Success::page(Body::Type(|of, schemas| {
        let schema =
            schemas.add_response::<EventPage<'_>>(&format!("{}Events", of.name), &[("events/items", &of.event)]);
        let examples = of.of_creation(|created| {
            let events = events_json(&created.events);
            json_of(&EventPage { id: ID, events, cursor: created.after.version(), unreadable: Vec::new() })
        });
        Content { schema, examples }
    }))],
    problems: &[&[&problem::BAD_ID], READ_PROBLEMS, &[&problem::NOT_FOUND, &problem::NEWER_RELEASE]],
    ..Endpoint::READ
};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct EventsQuery {
    /// The `seqNum` after which the page begins.
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
    /// The `after` for the next page. The last page has one too.
    pub(crate) cursor: u64,
    /// The rows of this page that cannot be read; omitted if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) unreadable: Vec<UnreadableJson>,
}

async fn events_of_aggregate(
    State(api): State<Api>,
    PathParameters((type_name, id)): PathParameters<(String, String)>,
    QueryParameters(query): QueryParameters<EventsQuery>,
    RequestReader(caller): RequestReader,
) -> Result<Response, Problem> {
    let (model, key) = api.aggregate(&type_name, &id)?;
    let limit = checked_limit(query.limit)?;
    let (read, shows_meta) = reading(&api.store, model, &key, caller.as_ref()).await?;
    if !read.is_whole() {
        return Err(problem::forbidden("Read, of events"));
    }
    let found = api.store.events(&key, query.after, limit).await?;
    // Without events after `after`, the page is empty, but only if the aggregate exists.
    let is_empty = |page: &Page<RecordedEvent, u64>| page.items.is_empty() && page.unreadable.is_empty();
    if is_empty(&found) && (query.after == 0 || is_empty(&api.store.events(&key, 0, 1).await?)) {
        return Err(Problem::of(&problem::NOT_FOUND));
    }
    let events = found.items.iter().map(|event| EventJson::of(event, shows_meta));
    let body = EventPage {
        id: &key.id,
        events: events.collect(),
        cursor: found.cursor,
        unreadable: report_unreadable(&found.unreadable),
    };
    page(&body, found.more.then(|| format!("/{key}/events?after={}&limit={limit}", found.cursor)))
}
