//! Pages of lists and feeds: their size, their cursors, the link to the next page, and the rows that they leave out.

use axum::http::{HeaderValue, header};
use axum::response::Response;
use daybook_event_store::UnreadableRow;
use daybook_table::keys;
use schemars::JsonSchema;
use serde::Serialize;
use ulid::Ulid;

use crate::problem::{self, Problem};
use crate::response::json_response;
use crate::signals;

pub(super) const MAX_LIMIT: usize = 1000;

pub(super) fn default_limit() -> usize {
    100
}

pub(super) fn checked_limit(limit: usize) -> Result<usize, Problem> {
    if (1..=MAX_LIMIT).contains(&limit) {
        return Ok(limit);
    }
    Err(Problem::new(&problem::BAD_QUERY, format!("limit must be from 1 to {MAX_LIMIT}")))
}

/// A stored row that cannot be read, and that the page leaves out: an event of an aggregate, or `key` if the row's keys are
/// not those of an event.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "UnreadableRow")]
pub(crate) struct UnreadableJson {
    /// The type of the aggregate.
    #[serde(skip_serializing_if = "Option::is_none")]
    aggregate_type: Option<String>,
    /// The id of the aggregate.
    #[serde(skip_serializing_if = "Option::is_none")]
    aggregate_id: Option<String>,
    /// The number of the event within its aggregate.
    #[serde(skip_serializing_if = "Option::is_none")]
    seq_num: Option<u64>,
    /// The row's partition key and sort key.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
}

impl From<&UnreadableRow> for UnreadableJson {
    fn from(row: &UnreadableRow) -> Self {
        match (row.aggregate(), row.seq_num()) {
            (Some(aggregate), Some(seq_num)) => Self {
                aggregate_type: Some(aggregate.aggregate_type),
                aggregate_id: Some(aggregate.id),
                seq_num: Some(seq_num),
                key: None,
            },
            _ => Self { aggregate_type: None, aggregate_id: None, seq_num: None, key: Some(row.to_string()) },
        }
    }
}

/// The rows that a page leaves out, which are also logged and counted.
pub(super) fn report_unreadable(rows: &[UnreadableRow]) -> Vec<UnreadableJson> {
    signals::report_unreadable(rows);
    rows.iter().map(Into::into).collect()
}

/// Parses a cursor, which is the id of the last event of its page or, for an empty page, of an earlier page. It is
/// opaque to callers.
pub(super) fn cursor(after: Option<String>) -> Result<Option<Ulid>, Problem> {
    let invalid = || Problem::new(&problem::BAD_QUERY, "after must be the cursor of a page");
    after.map(|text| keys::parse_id(&text).ok_or_else(invalid)).transpose()
}

/// A page, with a link to the next one if that has entries already. The store cuts pages so that they fit a response.
pub(super) fn page(body: &impl Serialize, next: Option<String>) -> Result<Response, Problem> {
    let mut response = json_response(body, || problem::internal("a page is larger than a response"))?;
    if let Some(next) = next {
        let link = HeaderValue::try_from(format!("<{next}>; rel=\"next\"")).map_err(problem::internal)?;
        response.headers_mut().insert(header::LINK, link);
    }
    Ok(response)
}
