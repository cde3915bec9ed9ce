//! `GET /events?type=T`: the events of a type across all aggregates, by time.

use axum::extract::State;
use axum::response::Response;
use axum::routing::on;
use daybook_decider::Access;
use daybook_decider::record::{ULID, timestamp};
use schemars::{JsonSchema, schema_for};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::authorization::{authorization, require};
use super::endpoint::{Body, Endpoint, READ_PROBLEMS, Success};
use super::page::{MAX_LIMIT, UnreadableJson, checked_limit, cursor, default_limit, page, report_unreadable};
use crate::api::Api;
use crate::openapi::aggregate_type::{AggregateType, ExampleOutcome};
use crate::openapi::schemas::{Content, ID, SETTLED, Schemas, json_of, written_schema};
use crate::problem::{self, Problem};
use crate::request::{QueryParameters, RequestReader};
use crate::response::EventJson;

pub(super) const ENDPOINT: Endpoint = Endpoint {
    path: "/events",
    handler: |method| on(method, events_of_type),
    name: "Feed",
    operation_id: "listEvents",
    summary: "Read the events of a type, across all aggregates",
    description: "The events in order of time. An event is found by the name under which it was stored, even if the \
                  name has changed since or the event is not used any more. The feed contains every event before \
                  `settledUpTo`, which is some seconds ago, and none after it: a reader who requests the next page \
                  with `cursor` as `after`, again and again, gets every event exactly once. `Link` is the next page, \
                  if there is one already.",
    query: Some(|| schema_for!(FeedQuery)),
    successes: &[Success::page(Body::Service(|types, schemas| {
        let examples = types.first().map(|of| of.of_creation(|created| example(of, created))).unwrap_or_default();
        Content { schema: feed_schema(types, schemas), examples }
    }))],
    problems: &[READ_PROBLEMS, &[&problem::UNKNOWN_EVENT_TYPE]],
    ..Endpoint::READ
};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FeedQuery {
    /// The event type.
    r#type: String,
    /// The `cursor` of the previous page.
    #[schemars(regex(pattern = ULID))]
    after: Option<String>,
    /// The maximum number of entries; a page of large entries has fewer.
    #[schemars(range(min = 1, max = MAX_LIMIT))]
    #[serde(default = "default_limit")]
    limit: usize,
}

/// Events of one type, by time.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FeedPage<'a> {
    /// The entries of this page, each with its aggregate.
    pub(crate) events: Vec<FeedEventJson<'a>>,
    /// The `after` for the next page. The last page has one too.
    #[schemars(regex(pattern = ULID))]
    pub(crate) cursor: String,
    /// The time up to which every event is in the feed: RFC 3339 in UTC, with milliseconds. Later events are on later
    /// pages.
    #[schemars(extend("format" = "date-time"))]
    pub(crate) settled_up_to: String,
    /// The rows of this page that cannot be read; omitted if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) unreadable: Vec<UnreadableJson>,
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

/// The schema of the page, with the events of all types in it.
fn feed_schema(types: &[AggregateType<'_>], schemas: &mut Schemas) -> Value {
    let entry = written_schema::<FeedEventJson<'_>>();
    let own = ["aggregateType", "aggregateId"];
    let members: Map<_, _> = own.iter().map(|name| ((*name).to_owned(), entry["properties"][name].clone())).collect();
    let of_type = |of: &AggregateType<'_>| {
        let mut members = members.clone();
        members["aggregateType"]["const"] = of.model.type_name().into();
        json!({"allOf": [of.event, {"type": "object", "properties": members, "required": own}]})
    };
    let entries: Vec<_> = types.iter().map(of_type).collect();
    let entry = schemas.add("FeedEntry", json!({"description": entry["description"], "oneOf": entries}));
    schemas.add_response::<FeedPage<'_>>("Feed", &[("events/items", &entry)])
}

/// A page of the feed of the event that opens a stream.
fn example(of: &AggregateType<'_>, created: &ExampleOutcome) -> Option<Value> {
    let created = created.events.first()?;
    let event = EventJson::of(created, true);
    json_of(&FeedPage {
        events: vec![FeedEventJson { aggregate_type: of.model.type_name(), aggregate_id: ID, event }],
        cursor: created.event_id.to_string(),
        settled_up_to: timestamp(SETTLED),
        unreadable: Vec::new(),
    })
}

async fn events_of_type(
    State(api): State<Api>,
    QueryParameters(query): QueryParameters<FeedQuery>,
    RequestReader(caller): RequestReader,
) -> Result<Response, Problem> {
    let model = api.registry.with_event(&query.r#type);
    let model = model.ok_or_else(|| problem::unknown_event_type(&query.r#type))?;
    require(model, &caller, Access::Feed(model.event_name(&query.r#type)), None, None)?;
    let shows_meta = authorization(model, &caller, Access::ReadMeta, None, None)?.is_allowed();
    feed_of(&api, &[&query.r#type], query.after, query.limit, shows_meta).await
}

/// A page of a feed after the cursor `after`.
pub(crate) async fn feed_of(
    api: &Api,
    event_types: &[&str],
    after: Option<String>,
    limit: usize,
    shows_meta: bool,
) -> Result<Response, Problem> {
    let limit = checked_limit(limit)?;
    let settled_up_to = api.store.settled_up_to(api.store.now());
    let found = api.store.feed(event_types, cursor(after)?, limit, settled_up_to).await?;
    let events = found.items.iter().map(|found| FeedEventJson {
        aggregate_type: &found.aggregate.aggregate_type,
        aggregate_id: &found.aggregate.id,
        event: EventJson::of(&found.event, shows_meta),
    });
    let body = FeedPage {
        events: events.collect(),
        cursor: found.cursor.to_string(),
        settled_up_to: timestamp(settled_up_to),
        unreadable: report_unreadable(&found.unreadable),
    };
    let event_type = event_types.first().copied().unwrap_or_default();
    page(&body, found.more.then(|| format!("/events?type={event_type}&after={}&limit={limit}", found.cursor)))
}
