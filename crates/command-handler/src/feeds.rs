//! Events of one aggregate, events of a type, and the aggregates of a type.

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use daybook_decider::record::timestamp;
use daybook_event_store::FeedEvent;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use ulid::Ulid;

use crate::answer::{EventAnswer, ULID, json};
use crate::api::Api;
use crate::problem::Problem;
use crate::query::Parameters;
use crate::request::Target;

/// Entries on a page, where the caller does not say.
const DEFAULT_LIMIT: usize = 100;

/// Entries on a page at most.
const MAX_LIMIT: usize = 1000;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventsQuery {
    /// The `seqNum` that the page comes after.
    #[serde(default)]
    after: u64,
    /// How many at most; a page has fewer where entries are large.
    #[schemars(range(min = 1, max = MAX_LIMIT))]
    #[serde(default = "default_limit")]
    limit: usize,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FeedQuery {
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

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    /// A cursor from the `Link` of the page before.
    #[schemars(regex(pattern = ULID))]
    after: Option<String>,
    /// How many at most; a page has fewer where entries are large.
    #[schemars(range(min = 1, max = MAX_LIMIT))]
    #[serde(default = "default_limit")]
    limit: usize,
}

fn default_limit() -> usize {
    DEFAULT_LIMIT
}

/// Events of one aggregate, in order.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Events<'a> {
    /// The aggregate's id.
    pub(crate) id: &'a str,
    /// Those of this page.
    pub(crate) events: Vec<EventAnswer<'a>>,
}

/// Events of one type, by time.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Feed<'a> {
    /// Those of this page, each with the aggregate that it belongs to.
    pub(crate) events: Vec<FeedEntry<'a>>,
}

/// An event with the aggregate that it belongs to.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FeedEntry<'a> {
    /// The type of the aggregate.
    pub(crate) aggregate_type: &'a str,
    /// The id of the aggregate.
    pub(crate) aggregate_id: &'a str,
    #[serde(flatten)]
    pub(crate) event: EventAnswer<'a>,
}

impl<'a> From<&'a FeedEvent> for FeedEntry<'a> {
    fn from(found: &'a FeedEvent) -> Self {
        Self {
            aggregate_type: &found.aggregate.aggregate_type,
            aggregate_id: &found.aggregate.id,
            event: (&found.event).into(),
        }
    }
}

/// Aggregates of one type, by creation; deleted ones too.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Aggregates<'a> {
    /// Those of this page.
    pub(crate) aggregates: Vec<AggregateEntry<'a>>,
}

/// That an aggregate was created.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AggregateEntry<'a> {
    /// Its id.
    pub(crate) id: &'a str,
    /// When: RFC 3339 in UTC, with milliseconds.
    #[schemars(extend("format" = "date-time"))]
    pub(crate) created_at: String,
}

/// `GET /{type}/{id}/events`: after a number, in order. Those of a deleted aggregate too.
pub(crate) async fn events_of_aggregate(
    State(api): State<Api>,
    Target((type_name, id)): Target<(String, String)>,
    Parameters(query): Parameters<EventsQuery>,
) -> Result<Response, Problem> {
    let (_, key) = api.aggregate(&type_name, &id)?;
    let limit = checked(query.limit)?;
    let page = api.store().events(&key, query.after, limit).await?;
    // Nothing behind `after` is an answer, but only of an aggregate that exists.
    if page.items.is_empty() && (query.after == 0 || api.store().events(&key, 0, 1).await?.items.is_empty()) {
        return Err(Problem::NotFound);
    }
    let body = Events { id: &key.id, events: page.items.iter().map(Into::into).collect() };
    let next = page.next.map(|after| format!("/{key}/events?after={after}&limit={limit}"));
    page_with(&body, next)
}

/// `GET /events?type=T`: after a cursor, by time.
pub(crate) async fn events_of_type(
    State(api): State<Api>,
    Parameters(query): Parameters<FeedQuery>,
) -> Result<Response, Problem> {
    if api.registry().with_event(&query.r#type).is_none() {
        return Err(Problem::UnknownEventType { asked: query.r#type });
    }
    let limit = checked(query.limit)?;
    let page = api.store().feed(&query.r#type, cursor(query.after)?, limit).await?;
    let body = Feed { events: page.items.iter().map(Into::into).collect() };
    let next = page.next.map(|after| format!("/events?type={}&after={after}&limit={limit}", query.r#type));
    page_with(&body, next)
}

/// `GET /{type}`: after a cursor, by creation. It is the feed of the event that opens a stream, whatever it was called at
/// the time.
pub(crate) async fn aggregates_of_type(
    State(api): State<Api>,
    Target(type_name): Target<String>,
    Parameters(query): Parameters<ListQuery>,
) -> Result<Response, Problem> {
    let model = api.model(&type_name)?;
    let limit = checked(query.limit)?;
    let page = api.store().merged_feed(&model.opening_events(), cursor(query.after)?, limit).await?;
    // An event of that name may also occur later in a stream.
    let openings = page.items.iter().filter(|found| found.event.seq_num == 1);
    let aggregates = openings
        .map(|found| AggregateEntry { id: &found.aggregate.id, created_at: timestamp(found.event.occurred_at) });
    let body = Aggregates { aggregates: aggregates.collect() };
    let next = page.next.map(|after| format!("/{type_name}?after={after}&limit={limit}"));
    page_with(&body, next)
}

fn checked(limit: usize) -> Result<usize, Problem> {
    if (1..=MAX_LIMIT).contains(&limit) {
        return Ok(limit);
    }
    Err(Problem::BadQuery { reason: format!("limit must be from 1 to {MAX_LIMIT}") })
}

/// A cursor is the id of the event that the page before ended with; to callers it is opaque.
fn cursor(after: Option<String>) -> Result<Option<Ulid>, Problem> {
    after
        .map(|text| Ulid::from_string(&text))
        .transpose()
        .map_err(|_| Problem::BadQuery { reason: "after must be a cursor from a Link header".to_owned() })
}

/// A page, with the way to the next one. The store cuts pages so that they fit an answer.
fn page_with(body: &impl Serialize, next: Option<String>) -> Result<Response, Problem> {
    let mut response = json(body, Problem::Internal { cause: "a page is larger than an answer".to_owned() })?;
    if let Some(next) = next {
        let link = HeaderValue::try_from(format!("<{next}>; rel=\"next\""));
        let link = link.map_err(|fault| Problem::Internal { cause: fault.to_string() })?;
        response.headers_mut().insert(header::LINK, link);
    }
    Ok(response)
}
