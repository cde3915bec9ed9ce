//! The search: an aggregate by its id, of any type, or by `TYPE/ID`.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use daybook_admin::AdminCalls;
use daybook_table::AggregateKey;
use daybook_table::keys::is_id;
use maud::html;
use serde::Deserialize;

use crate::console::Console;
use crate::failure::Failure;
use crate::markup::frame::Frame;
use crate::paths;
use crate::query::PageQuery;

#[derive(Deserialize)]
pub(crate) struct SearchQuery {
    #[serde(default)]
    q: String,
}

/// Shows the aggregate with this id, or a list if several types have one. Other ids are shown as what they are: an id
/// may also be that of a business transaction or a message.
pub(crate) async fn page(
    State(console): State<Arc<Console>>,
    PageQuery(SearchQuery { q }): PageQuery<SearchQuery>,
) -> Result<Response, Failure> {
    let wanted = q.trim();
    let (of_type, id) = match wanted.split_once('/') {
        Some((of_type, id)) => (Some(of_type), id),
        None => (None, wanted),
    };
    let models = console.registry.iter().map(|model| model.type_name());
    let keys = models.filter(|name| of_type.is_none_or(|of_type| of_type == *name));
    let keys: BTreeSet<_> = keys.filter(|_| is_id(id)).map(|name| AggregateKey::new(name, id)).collect();
    let found = if keys.is_empty() { Default::default() } else { console.store.admin().versions(&keys).await? };
    let found: Vec<_> = found.into_keys().collect();
    if let [only] = found.as_slice() {
        return Ok(Redirect::to(&paths::aggregate(only)).into_response());
    }
    let content = html! {
        h1 { "Search" }
        @if wanted.is_empty() {
            p.empty { "Enter the id of an aggregate, such as " code { "123" } " or " code { "account/123" } "." }
        } @else if found.is_empty() {
            p.empty { "No aggregate has the id " code { (wanted) } "." }
            @if console.is_local() {
                p.empty { "It could be something else:" }
                ul {
                    li { a href=(paths::correlation(wanted)) { "a correlation id" } }
                    li { a href=(paths::with_query(&paths::page("/bus"), &[("containing", wanted)])) { "a text in the messages on the bus" } }
                }
            }
        } @else {
            p { "Several types have an aggregate with this id:" }
            ul { @for key in &found { li { a href=(paths::aggregate(key)) { (key) } } } }
        }
    };
    Ok(Frame::new("Search").searching(wanted).with(content).into_response())
}
