//! `GET /events?type=T`: the events of a type across all aggregates, by time.

use axum::extract::State;
use axum::http::Method;
use axum::response::Response;
use axum::routing::on;
use schemars::{JsonSchema, schema_for};
use serde::{Deserialize, Serialize};

use super::endpoint::{Endpoint, Success};
use super::page::{MAX_LIMIT, checked_limit, cursor, default_limit, page};
use super::request_headers::READ_CORRELATION_ID;
use crate::api::Api;
use crate::problem::{self, Problem};
use crate::request::QueryParameters;
use crate::response::{EventJson, ULID};

pub(super) const ENDPOINT: Endpoint = Endpoint {
    method: Method::GET,
    path: "/events",
    handler: |method| on(method, events_of_type),
    name: "Feed",
    operation_id: "listEvents",
    command: None,
    summary: "Read the events of a type, across all aggregates",
    description: "By time. Events are found by the name that they were stored under: what has another name today, or \
                  means nothing any more, by the one that it had. The feed follows a write within moments, and an \
                  event can appear behind a cursor of the same second: it is for looking back, the bus for keeping up. \
                  `Link` leads to the next page, and is missing on the last.",
    query: Some(|| schema_for!(FeedQuery)),
    request_headers: &[&[&READ_CORRELATION_ID]],
    request_body: None,
    successes: &[Success::FeedPage],
    problems: &[&[&problem::BAD_QUERY, &problem::UNKNOWN_EVENT_TYPE, &problem::INTERNAL, &problem::UNAVAILABLE]],
};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FeedQuery {
    /// The event type.
    r#type: String,
    /// A cursor from the `Link` of the page before.
    #[schemars(regex(pattern = ULID))]
    after: Option<String>,
    /// How many at most; a page has fewer where entries are large.
    #[schemars(range(min = 1, max = MAX_LIMIT))]
    #[serde(default = "default_limit")]
    limit: usize,
}

/// Events of one type, by time.
#[derive(Serialize, JsonSchema)]
pub(crate) struct FeedPage<'a> {
    /// Those of this page, each with the aggregate that it belongs to.
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
) -> Result<Response, Problem> {
    if api.registry.with_event(&query.r#type).is_none() {
        return Err(problem::unknown_event_type(&query.r#type));
    }
    let limit = checked_limit(query.limit)?;
    let found = api.store.feed(&query.r#type, cursor(query.after)?, limit).await?;
    let events = found.items.iter().map(|found| FeedEventJson {
        aggregate_type: &found.aggregate.aggregate_type,
        aggregate_id: &found.aggregate.id,
        event: (&found.event).into(),
    });
    let body = FeedPage { events: events.collect() };
    page(&body, found.next.map(|after| format!("/events?type={}&after={after}&limit={limit}", query.r#type)))
}
