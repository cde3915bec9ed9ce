//! `GET /{type}`: the aggregates of a type, by creation.

use axum::extract::State;
use axum::http::Method;
use axum::response::Response;
use axum::routing::on;
use daybook_decider::Access;
use daybook_decider::record::timestamp;
use schemars::{JsonSchema, schema_for};
use serde::{Deserialize, Serialize};

use super::authorization::require;
use super::endpoint::{Endpoint, Success};
use super::page::{MAX_LIMIT, checked_limit, cursor, default_limit, page};
use super::request_headers::READ_CORRELATION_ID;
use crate::api::Api;
use crate::problem::{self, Problem};
use crate::request::{PathParameters, QueryParameters, RequestCaller};
use crate::response::ULID;

pub(super) const ENDPOINT: Endpoint = Endpoint {
    method: Method::GET,
    path: "/{type}",
    handler: |method| on(method, list),
    name: "List",
    operation_id: "list",
    command: None,
    summary: "List all",
    description: "The aggregates in order of creation, including deleted ones. A new aggregate appears within \
                  moments. `Link` is the next page; the last page has none.",
    query: Some(|| schema_for!(ListQuery)),
    request_headers: &[&[&READ_CORRELATION_ID]],
    request_body: None,
    successes: &[Success::AggregatePage],
    problems: &[&[&problem::BAD_QUERY, &problem::FORBIDDEN, &problem::INTERNAL, &problem::UNAVAILABLE]],
};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    /// A cursor, from the `Link` of the previous page.
    #[schemars(regex(pattern = ULID))]
    after: Option<String>,
    /// The maximum number of entries; a page of large entries has fewer.
    #[schemars(range(min = 1, max = MAX_LIMIT))]
    #[serde(default = "default_limit")]
    limit: usize,
}

/// Aggregates of one type, by creation; deleted ones too.
#[derive(Serialize, JsonSchema)]
pub(crate) struct AggregatePage<'a> {
    /// The entries of this page.
    pub(crate) aggregates: Vec<ListedAggregate<'a>>,
}

/// An aggregate of the list.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "AggregateEntry")]
pub(crate) struct ListedAggregate<'a> {
    /// Its id.
    pub(crate) id: &'a str,
    /// When: RFC 3339 in UTC, with milliseconds.
    #[schemars(extend("format" = "date-time"))]
    pub(crate) created_at: String,
}

/// The list is the feed of the event that opens a stream, under every name that this event has had.
async fn list(
    State(api): State<Api>,
    PathParameters(type_name): PathParameters<String>,
    QueryParameters(query): QueryParameters<ListQuery>,
    RequestCaller(caller): RequestCaller,
) -> Result<Response, Problem> {
    let model = api.model(&type_name)?;
    require(model, &caller, Access::List, None)?;
    let limit = checked_limit(query.limit)?;
    let found = api.store.merged_feed(&model.opening_events(), cursor(query.after)?, limit).await?;
    // An event of that name may also occur later in a stream.
    let openings = found.items.iter().filter(|found| found.event.seq_num == 1);
    let aggregates = openings
        .map(|found| ListedAggregate { id: &found.aggregate.id, created_at: timestamp(found.event.occurred_at) });
    let body = AggregatePage { aggregates: aggregates.collect() };
    page(&body, found.next.map(|after| format!("/{type_name}?after={after}&limit={limit}")))
}
