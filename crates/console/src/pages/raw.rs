//! Rows and messages as they are stored, on demand.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use daybook_admin::AdminCalls;
use daybook_local_aws::messaging::MessageQuery;
use daybook_table::attributes;
use maud::html;

use super::aggregate::aggregate;
use crate::console::Console;
use crate::frame::{Failure, Page};
use crate::request::PagePath;
use crate::stack::DeadLetterAction;
use crate::{json, paths};

/// Shows the rows of an event: the event, its messages, and the metadata.
pub(crate) async fn rows(
    State(console): State<Arc<Console>>,
    PagePath((of_type, id, number)): PagePath<(String, String, u64)>,
) -> Result<Page, Failure> {
    let (_, key) = aggregate(&console, (of_type, id))?;
    let rows = console.store.admin().rows_of_event(&key, number).await?;
    let content = html! {
        h1 { "Rows of event " (number) }
        p.facts { a href=(paths::version(&key, number)) { (key) " at version " (number) } }
        @if rows.is_empty() { p.empty { "There are none." } }
        @for row in &rows {
            h2 { code { (row[attributes::SK].as_str().unwrap_or("?")) } }
            (json::block(&row.to_string()))
        }
    };
    Ok(Page::new(format!("{key} event {number}"), "Aggregates", content))
}

pub(crate) async fn bus_message(
    State(console): State<Arc<Console>>,
    PagePath(position): PagePath<usize>,
) -> Result<Response, Failure> {
    let (after, before) = (Some(position.saturating_sub(1)), Some(position.saturating_add(1)));
    let part = console.stack.messages(MessageQuery { after, before, ..MessageQuery::default() }).await?;
    let message =
        part.messages.first().ok_or_else(|| Failure::missing(format!("The bus has no message {position}.")))?;
    Ok(plain(&message.entry.detail))
}

pub(crate) async fn dead_letter(
    State(console): State<Arc<Console>>,
    PagePath(id): PagePath<String>,
) -> Result<Response, Failure> {
    let messages = console.stack.dead_letters(DeadLetterAction::Nothing).await?.messages;
    let message = messages.into_iter().map(|waiting| waiting.message).find(|message| message.message_id == id);
    Ok(plain(&message.ok_or_else(|| Failure::missing(format!("No dead-letter queue has the message {id}.")))?.body))
}

/// A value as text: a browser shows it, and runs nothing in it.
fn plain(text: &str) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], json::indented(text)).into_response()
}
