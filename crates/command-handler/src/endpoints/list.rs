//! `GET /{type}`: the aggregates of a type, by creation.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::on;
use daybook_decider::record::{ULID, timestamp};
use daybook_decider::{Access, Caller, Claim, Model};
use schemars::{JsonSchema, schema_for};
use serde::{Deserialize, Serialize};

use super::authorization::{may_read, require};
use super::endpoint::{Body, Endpoint, READ_PROBLEMS, Success};
use super::page::{MAX_LIMIT, UnreadableJson, checked_limit, cursor, default_limit, page, report_unreadable};
use crate::api::Api;
use crate::openapi::schemas::{Content, ID, SETTLED, json_of};
use crate::problem::{self, Problem};
use crate::request::{PathParameters, QueryParameters, RequestReader};

pub(super) const ENDPOINT: Endpoint = Endpoint {
    path: "/{type}",
    handler: |method| on(method, list),
    name: "List",
    operation_id: "list",
    summary: "List all",
    description: "The aggregates in order of creation, including deleted ones. The list contains every aggregate that \
                  was created before `settledUpTo`, which is some seconds ago, and none that was created after it: a \
                  reader who requests the next page with `cursor` as `after`, again and again, gets every aggregate \
                  exactly once. `Link` is the next page, if there is one already.\n\nWith `claim`, the response redirects to \
                  the aggregate of this type that has the claim. This is strongly consistent.",
    query: Some(|| schema_for!(ListQuery)),
    successes: &[
        Success::page(Body::Type(|of, schemas| {
            let examples = of.of_creation(|created| {
                let created = created.events.first()?;
                json_of(&AggregatePage {
                    aggregates: vec![ListedAggregate { id: ID, created_at: timestamp(created.occurred_at) }],
                    cursor: created.event_id.to_string(),
                    settled_up_to: timestamp(SETTLED),
                    unreadable: Vec::new(),
                })
            });
            Content { schema: schemas.add_response::<AggregatePage<'_>>("Aggregates", &[]), examples }
        })),
        Success {
            status: StatusCode::SEE_OTHER,
            description: "The aggregate that has the claim.",
            headers: &[("Location", true)],
            body: None,
        },
    ],
    problems: &[READ_PROBLEMS, &[&problem::NOT_FOUND]],
    ..Endpoint::READ
};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    /// The `cursor` of the previous page.
    #[schemars(regex(pattern = ULID))]
    after: Option<String>,
    /// The maximum number of entries; a page of large entries has fewer.
    #[schemars(range(min = 1, max = MAX_LIMIT))]
    #[serde(default = "default_limit")]
    limit: usize,
    /// A unique value, as `name:value`, whose aggregate is looked for.
    #[schemars(length(min = 3, max = Claim::MAX_NAME + 1 + Claim::MAX_VALUE))]
    claim: Option<String>,
}

/// Aggregates of one type, by creation; deleted ones too.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AggregatePage<'a> {
    /// The entries of this page.
    pub(crate) aggregates: Vec<ListedAggregate<'a>>,
    /// The `after` for the next page. The last page has one too.
    #[schemars(regex(pattern = ULID))]
    pub(crate) cursor: String,
    /// The time up to which every aggregate is in the list: RFC 3339 in UTC, with milliseconds. Those that were created later
    /// are on later pages.
    #[schemars(extend("format" = "date-time"))]
    pub(crate) settled_up_to: String,
    /// The rows of this page that cannot be read; omitted if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) unreadable: Vec<UnreadableJson>,
}

/// An aggregate of the list.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "AggregateEntry")]
pub(crate) struct ListedAggregate<'a> {
    /// The id of the aggregate.
    pub(crate) id: &'a str,
    /// The time of the creation: RFC 3339 in UTC, with milliseconds.
    #[schemars(extend("format" = "date-time"))]
    pub(crate) created_at: String,
}

/// The list is the feed of the event that opens a stream, under every name that this event has had.
async fn list(
    State(api): State<Api>,
    PathParameters(type_name): PathParameters<String>,
    QueryParameters(query): QueryParameters<ListQuery>,
    RequestReader(caller): RequestReader,
) -> Result<Response, Problem> {
    let model = api.model(&type_name)?;
    if let Some(claim) = query.claim {
        return redirect_to_holder(&api, model, &claim, caller.as_ref()).await;
    }
    require(model, &caller, Access::List, None, None)?;
    let limit = checked_limit(query.limit)?;
    let settled_up_to = api.store.settled_up_to(api.store.now());
    let found = api.store.feed(&model.opening_events(), cursor(query.after)?, limit, settled_up_to).await?;
    // An event of that name may also occur later in a stream.
    let openings = found.items.iter().filter(|found| found.event.seq_num == 1);
    let aggregates = openings
        .map(|found| ListedAggregate { id: &found.aggregate.id, created_at: timestamp(found.event.occurred_at) });
    let body = AggregatePage {
        aggregates: aggregates.collect(),
        cursor: found.cursor.to_string(),
        settled_up_to: timestamp(settled_up_to),
        unreadable: report_unreadable(&found.unreadable),
    };
    page(&body, found.more.then(|| format!("/{type_name}?after={}&limit={limit}", found.cursor)))
}

/// A caller who may not read the aggregate does not learn whether the value is taken.
async fn redirect_to_holder(
    api: &Api,
    model: &dyn Model,
    claim: &str,
    caller: Option<&Caller>,
) -> Result<Response, Problem> {
    let invalid = || Problem::new(&problem::BAD_QUERY, "claim must be name:value");
    let row = api.store.claim(&Claim::parse(claim).ok_or_else(invalid)?).await?;
    match row.map(|row| row.holder()).filter(|holder| holder.aggregate_type == model.type_name()) {
        Some(holder) if may_read(api, &holder, caller).await? => {
            Ok((StatusCode::SEE_OTHER, [(header::LOCATION, format!("/{holder}"))]).into_response())
        }
        _ => Err(Problem::of(&problem::NOT_FOUND)),
    }
}
