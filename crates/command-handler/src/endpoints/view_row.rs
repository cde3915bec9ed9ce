//! `GET /views/{view}/{key}`: a row of a view.

use axum::Extension;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::on;
use daybook_decider::Json;
use daybook_projection::ViewAccess;
use schemars::{JsonSchema, schema_for};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::endpoint::{Body, Endpoint, ROW_PATH, Success};
use super::request_headers::{READ_CORRELATION_ID, ROW_IF_NONE_MATCH};
use super::seen::{SEEN_PROBLEMS, wait_until_seen};
use crate::api::Api;
use crate::etag::is_none_match;
use crate::openapi::schemas::{Content, Schemas, json_of, named};
use crate::openapi::view::ViewSubject;
use crate::problem::{self, Problem};
use crate::request::bounds::Bounds;
use crate::request::{QueryParameters, RequestCaller};
use crate::response::json_response;

pub(super) const ENDPOINT: Endpoint = Endpoint {
    path: ROW_PATH,
    handler: |method| on(method, read_row),
    name: "Row",
    operation_id: "readRow",
    summary: "Read a row",
    description: "A row of the view, as the events that the view has followed so far make it. A view follows new events \
                  within a moment; with `seen`, the response waits for an event.",
    query: Some(|| schema_for!(RowQuery)),
    request_headers: &[&[&ROW_IF_NONE_MATCH, &READ_CORRELATION_ID]],
    successes: &[
        Success {
            status: StatusCode::OK,
            description: "The row.",
            headers: &[("Row-ETag", true)],
            body: Some(Body::View(|of, schemas| {
                let example = of.example.as_ref().and_then(|(key, row)| json_of(&RowResponse { key, row }));
                Content { schema: row_schema(of, schemas), examples: named([("one", example)]) }
            })),
        },
        Success::not_modified(&[("Row-ETag", true)]),
    ],
    problems: &[
        SEEN_PROBLEMS,
        &[&problem::FORBIDDEN, &problem::NO_SUCH_ROW, &problem::TOO_LARGE, &problem::INTERNAL, &problem::UNAVAILABLE],
    ],
    ..Endpoint::READ
};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RowQuery {
    /// An event that the view must show: the type and the id of its aggregate and its number. The response to a write has
    /// that number as `version`. The response waits for it, for 2 seconds unless the operator set another time.
    seen: Option<String>,
}

/// A row of a view.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ViewRow")]
pub(crate) struct RowResponse<'a> {
    /// The key of the row.
    pub(crate) key: &'a str,
    /// Its contents.
    pub(crate) row: &'a Json,
}

pub(super) fn row_schema(of: &ViewSubject<'_>, schemas: &mut Schemas) -> Value {
    schemas.add_response::<RowResponse<'_>>(&format!("{}RowRead", of.name), &[("row", &of.row)])
}

async fn read_row(
    State(api): State<Api>,
    path: Result<Path<(String, String)>, PathRejection>,
    QueryParameters(query): QueryParameters<RowQuery>,
    RequestCaller(caller): RequestCaller,
    Extension(bounds): Extension<Bounds>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    // A key is a text, which this path does not encode.
    let Ok(Path((name, key))) = path else { return Err(Problem::of(&problem::NO_SUCH_ROW)) };
    let view = api.view(&name).await?;
    let (rows, part_count) = (view.rows(), view.model.part_count());
    let found = match wait_until_seen(&api, view, query.seen.as_deref(), &caller, &bounds).await? {
        Some(aggregate) => view.store.row_after(&rows, part_count, &key, &aggregate).await?,
        None => view.store.row(&rows, part_count, &key).await?,
    };
    let row = found.as_ref().map(|found| view.merge(&found.parts)).transpose()?.flatten();
    view.require(&caller, ViewAccess::Read(&key), row.as_ref())?;
    let (Some(found), Some(row)) = (found, row) else { return Err(Problem::of(&problem::NO_SUCH_ROW)) };
    let etag = HeaderValue::try_from(format!("\"{}\"", found.etag)).map_err(problem::internal)?;
    if is_none_match(&headers, &etag) {
        return Ok((StatusCode::NOT_MODIFIED, [(header::ETAG, etag)]).into_response());
    }
    let too_large = || Problem::new(&problem::TOO_LARGE, "the row is larger than the 6 MB of a response");
    let response = json_response(&RowResponse { key: &key, row: &row }, too_large)?;
    Ok(([(header::ETAG, etag)], response).into_response())
}
