//! `GET /events?type=T`: the events of a type across all aggregates, by time.

use axum::extract::State;
use axum::http::Method;
use axum::response::Response;
use axum::routing::on;
use daybook_decider::Access;
use schemars::{JsonSchema, schema_for};
use serde::{Deserialize, Serialize};

use super::authorization::require;
use super::endpoint::{Endpoint, Success};
use super::page::{MAX_LIMIT, checked_limit, cursor, default_limit, page};
use super::request_headers::READ_CORRELATION_ID;
use crate::api::Api;
use crate::problem::{self, Problem};
use crate::request::{QueryParameters, RequestCaller};
use crate::response::{EventJson, ULID};

pub(super) const ENDPOINT: Endpoint = Endpoint {
    method: Method::GET,
    path: "/events",
    handler: |method| on(method, events_of_type),
    name: "Feed",
    operation_id: "listEvents",
    command: None,
    summary: "Read the events of a type, across all aggregates",
    description: "The events in order of time. An event is found by the name under which it was stored, even if the \
                  name has changed since or the event is not used any more. A new event appears within moments, \
                  possibly before a cursor of the same second: use this list to look back, and the bus to follow new \
                  events. `Link` is the next page; the last page has none.",
    query: Some(|| schema_for!(FeedQuery)),
    request_headers: &[&[&READ_CORRELATION_ID]],
    request_body: None,
    successes: &[Success::FeedPage],
    problems: &[&[
        &problem::BAD_QUERY,
        &problem::FORBIDDEN,
        &problem::UNKNOWN_EVENT_TYPE,
        &problem::INTERNAL,
        &problem::UNAVAILABLE,
    ]],
};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FeedQuery {
    /// The event type.
    r#type: String,
    /// A cursor, from the `Link` of the previous page.
    #[schemars(regex(pattern = ULID))]
    after: Option<String>,
    /// The maximum number of entries; a page of large entries has fewer.
    #[schemars(range(min = 1, max = MAX_LIMIT))]
    #[serde(default = "default_limit")]
    limit: usize,
}

/// Events of one type, by time.
#[derive(Serialize, JsonSchema)]
pub(crate) struct FeedPage<'a> {
    /// The entries of this page, each with its aggregate.
    pub(crate) events: Vec<FeedEventJson<'a>>,
}

/// An event with the aggregate that it belongs to.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FeedEventJson<'a> {
    /// The type of the aggregate.
    pub(crate) aggregate_type: &'a str,
    /// The id of the aggregate.
    pub(crate) aggregate_id: &'a str,
    #[serde(flatten)]
    pub(crate) event: EventJson<'a>,
}

async fn events_of_type(
    State(api): State<Api>,
    QueryParameters(query): QueryParameters<FeedQuery>,
    RequestCaller(caller): RequestCaller,
) -> Result<Response, Problem> {
    let model = api.registry.with_event(&query.r#type);
    let model = model.ok_or_else(|| problem::unknown_event_type(&query.r#type))?;
    require(model, &caller, Access::Feed(&query.r#type), None)?;
    let shows_meta = model.authorize(&caller, Access::ReadMeta, None).is_allowed();
    let limit = checked_limit(query.limit)?;
    let found = api.store.feed(&query.r#type, cursor(query.after)?, limit).await?;
    let events = found.items.iter().map(|found| FeedEventJson {
        aggregate_type: &found.aggregate.aggregate_type,
        aggregate_id: &found.aggregate.id,
        event: EventJson::of(&found.event, shows_meta),
    });
    let body = FeedPage { events: events.collect() };
    page(&body, found.next.map(|after| format!("/events?type={}&after={after}&limit={limit}", query.r#type)))
}
