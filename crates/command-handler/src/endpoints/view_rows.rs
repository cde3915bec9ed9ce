//! `GET /views/{view}`: the rows of a view, in the order of their keys.

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use axum::routing::on;
use daybook_projection::{MAX_KEY, ViewAccess};
use daybook_view_store::RowRange;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use schemars::{JsonSchema, schema_for};
use serde::{Deserialize, Serialize};

use super::endpoint::{Body, Endpoint, Success, VIEW_PATH};
use super::page::{MAX_LIMIT, checked_limit, default_limit, page};
use super::seen::{SEEN_PROBLEMS, wait_until_seen};
use super::view_row::{RowResponse, row_schema};
use crate::api::Api;
use crate::openapi::schemas::{Content, json_of, named};
use crate::problem::{self, Problem};
use crate::request::bounds::Bounds;
use crate::request::{PathParameters, QueryParameters, RequestCaller};

/// Maximum bytes of the rows of a page. Escaped as JSON in JSON, they may need twice as many, which still fit a response.
const MAX_ROWS: usize = 2 * 1024 * 1024;

/// The characters of a link's parameters that are encoded.
const PARAMETER: &AsciiSet = &NON_ALPHANUMERIC.remove(b'.').remove(b'_').remove(b'~').remove(b'-');

pub(super) const ENDPOINT: Endpoint = Endpoint {
    path: VIEW_PATH,
    handler: |method| on(method, list_rows),
    name: "Rows",
    operation_id: "readView",
    summary: "Read the rows",
    description: "The rows in the order of their keys, by the bytes of UTF-8, or in the opposite order. Each row is as a \
                  read of this row returns it, but the rows of a page are not read at one moment: an event that changes \
                  several of them may show in some only. `Link` is the next page, if there is one.",
    query: Some(|| schema_for!(RowsQuery)),
    successes: &[Success::page(Body::View(|of, schemas| {
        let row = row_schema(of, schemas);
        let example = of
            .example
            .as_ref()
            .and_then(|(key, row)| json_of(&RowPage { cursor: key, rows: vec![RowResponse { key, row }] }));
        let schema = schemas.add_response::<RowPage<'_>>(&format!("{}Rows", of.name), &[("rows/items", &row)]);
        Content { schema, examples: named([("one", example)]) }
    }))],
    problems: &[SEEN_PROBLEMS, &[&problem::FORBIDDEN, &problem::INTERNAL, &problem::UNAVAILABLE]],
    ..Endpoint::READ
};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RowsQuery {
    /// The beginning of the keys of the rows. The `cursor` is of a page with the same prefix.
    #[schemars(length(max = MAX_KEY))]
    #[serde(default)]
    prefix: String,
    /// The least key of the rows. It begins with `prefix`.
    #[schemars(length(max = MAX_KEY))]
    from: Option<String>,
    /// The greatest key of the rows. It begins with `prefix`, and is not less than `from`. Keys are compared as texts, so
    /// `2026-12` is greater than `2026-11-29`, and less than `2026-12-01`.
    #[schemars(length(max = MAX_KEY))]
    to: Option<String>,
    /// The `cursor` of the previous page.
    #[schemars(length(max = MAX_KEY))]
    after: Option<String>,
    /// Whether the rows come in the opposite order.
    #[serde(default)]
    descending: bool,
    /// The maximum number of rows; a page of large rows has fewer.
    #[schemars(range(min = 1, max = MAX_LIMIT))]
    #[serde(default = "default_limit")]
    limit: usize,
    /// An event that the view must show: the type and the id of its aggregate and its number. The response to a write has
    /// that number as `version`. The response waits for it, for 2 seconds unless the operator set another time.
    seen: Option<String>,
}

/// Rows of a view, in the order of their keys.
#[derive(Serialize, JsonSchema)]
pub(crate) struct RowPage<'a> {
    /// The rows of this page.
    pub(crate) rows: Vec<RowResponse<'a>>,
    /// The `after` for the next page. The last page has one too.
    pub(crate) cursor: &'a str,
}

async fn list_rows(
    State(api): State<Api>,
    PathParameters(name): PathParameters<String>,
    QueryParameters(query): QueryParameters<RowsQuery>,
    RequestCaller(caller): RequestCaller,
    Extension(bounds): Extension<Bounds>,
) -> Result<Response, Problem> {
    let view = api.view(&name).await?;
    let RowsQuery { prefix, from, to, after, descending, limit, seen } = query;
    let limit = checked_limit(limit)?;
    let range =
        RowRange { prefix: &prefix, from: from.as_deref(), to: to.as_deref(), after: after.as_deref(), descending };
    check(range)?;
    view.require(&caller, ViewAccess::List(&prefix), None)?;
    wait_until_seen(&api, view, seen.as_deref(), &caller, &bounds).await?;
    let (found, mut more) = view.store.list(&view.rows(), view.model.part_count(), range, limit).await?;
    let mut rows = Vec::with_capacity(found.len());
    let mut bytes = 0;
    for found in &found {
        let Some(row) = view.merge(&found.parts)? else { continue };
        bytes += serde_json::to_string(&found.key).map_err(problem::internal)?.len() + row.text().len();
        if bytes > MAX_ROWS && !rows.is_empty() {
            more = true;
            break;
        }
        rows.push((found.key.as_str(), row));
    }
    let cursor = rows.last().map_or_else(|| after.as_deref().unwrap_or_default(), |(key, _)| *key);
    let body = RowPage { rows: rows.iter().map(|(key, row)| RowResponse { key, row }).collect(), cursor };
    page(&body, more.then(|| next_page(&name, RowRange { after: Some(cursor), ..range }, limit)))
}

fn check(RowRange { prefix, from, to, after, .. }: RowRange<'_>) -> Result<(), Problem> {
    let wrong = |detail: String| Err(Problem::new(&problem::BAD_QUERY, detail));
    let texts = [("prefix", Some(prefix)), ("from", from), ("to", to), ("after", after)];
    for (name, text) in texts.into_iter().filter_map(|(name, text)| Some((name, text?))) {
        if text.chars().count() > MAX_KEY {
            return wrong(format!("{name} must have up to {MAX_KEY} characters"));
        }
        if name != "after" && !text.starts_with(prefix) {
            return wrong(format!("{name} must begin with prefix, which is {prefix:?}"));
        }
    }
    match (from, to) {
        (Some(from), Some(to)) if from > to => wrong(format!("from is {from:?}, which is greater than to, {to:?}")),
        _ => Ok(()),
    }
}

fn next_page(name: &str, RowRange { prefix, from, to, after, descending }: RowRange<'_>, limit: usize) -> String {
    let parameter = |name: &str, text: Option<&str>| {
        let encoded = |text| format!("{name}={}&", utf8_percent_encode(text, PARAMETER));
        text.map(encoded).unwrap_or_default()
    };
    let prefix = parameter("prefix", Some(prefix).filter(|prefix| !prefix.is_empty()));
    let (from, to, after) = (parameter("from", from), parameter("to", to), parameter("after", after));
    let order = if descending { "&descending=true" } else { "" };
    format!("/views/{name}?{prefix}{from}{to}{after}limit={limit}{order}")
}
