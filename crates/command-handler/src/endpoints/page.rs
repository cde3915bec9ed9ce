//! Pages of lists and feeds: their size, their cursors and the link to the next page.

use axum::http::{HeaderValue, header};
use axum::response::Response;
use serde::Serialize;
use ulid::Ulid;

use crate::problem::{self, Problem};
use crate::response::json_response;

/// The maximum entries on a page.
pub(super) const MAX_LIMIT: usize = 1000;

/// The maximum entries on a page, where the caller names none.
pub(super) fn default_limit() -> usize {
    100
}

pub(super) fn checked_limit(limit: usize) -> Result<usize, Problem> {
    if (1..=MAX_LIMIT).contains(&limit) {
        return Ok(limit);
    }
    Err(Problem::new(&problem::BAD_QUERY, format!("limit must be from 1 to {MAX_LIMIT}")))
}

/// A cursor is the id of the last event of the page before; to callers it is opaque.
pub(super) fn cursor(after: Option<String>) -> Result<Option<Ulid>, Problem> {
    after
        .map(|text| Ulid::from_string(&text))
        .transpose()
        .map_err(|_| Problem::new(&problem::BAD_QUERY, "after must be a cursor from a Link header"))
}

/// A page, with a link to the next one. The store cuts pages so that they fit a response.
pub(super) fn page(body: &impl Serialize, next: Option<String>) -> Result<Response, Problem> {
    let mut response = json_response(body, || problem::internal("a page is larger than a response"))?;
    if let Some(next) = next {
        let link = HeaderValue::try_from(format!("<{next}>; rel=\"next\"")).map_err(problem::internal)?;
        response.headers_mut().insert(header::LINK, link);
    }
    Ok(response)
}
