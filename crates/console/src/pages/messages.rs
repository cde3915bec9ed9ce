//! *Messages*: the messages of the latest events of a type, as they are in the outbox. For a stack on AWS, whose bus
//! stores none.

use std::sync::Arc;

use axum::extract::State;
use daybook_admin::{AdminCalls, EventMessages, IndexEntry, PublishedEvent};
use jiff::Timestamp;
use maud::{Markup, html};
use serde::Deserialize;

use super::bus::data_of;
use super::latest_events::{LatestEvents, latest_events, pages, position};
use crate::console::Console;
use crate::frame::{Failure, Page, tabs};
use crate::request::PageQuery;
use crate::{json, paths, time};

/// Events on a page. Each index partition is asked for as many.
const PAGE: usize = 20;

#[derive(Deserialize)]
pub(crate) struct MessagesQuery {
    /// The type of the aggregates; the first by default.
    #[serde(rename = "type")]
    of_type: Option<String>,
    before: Option<String>,
}

/// Shows the messages. It reads a page of each index partition of the type's events, and the outbox rows of the latest.
pub(crate) async fn page(
    State(console): State<Arc<Console>>,
    PageQuery(MessagesQuery { of_type, before }): PageQuery<MessagesQuery>,
) -> Result<Page, Failure> {
    let before = before.as_deref().map(position).transpose()?;
    let model = match &of_type {
        Some(name) => console.registry.get(name),
        None => console.registry.iter().next(),
    };
    let model = model.ok_or_else(|| Failure::missing("There is no such type."))?;
    let pages = pages(&console, &console.partitions_of_events(model), before, PAGE).await?;
    let is_of_type = |event: &IndexEntry| event.aggregate.aggregate_type == model.type_name();
    let LatestEvents { events, next } = latest_events(pages.iter(), PAGE, is_of_type);
    let published: Vec<_> = events.iter().map(published).collect();
    let messages = console.store.admin().messages_of(&published).await?;
    let address = |query: &[(&str, &str)]| paths::with_query(&paths::page("/messages"), query);
    let types = console.registry.iter().map(|model| model.type_name());
    let types = types.map(|name| (name, address(&[("type", name)])));
    let next = next.map(|before| address(&[("type", model.type_name()), ("before", &before.to_string())]));
    let content = html! {
        h1 { "Messages" }
        p.facts {
            "The messages of the latest events, as they are in the outbox. The relay sends them to the bus; the page "
            a href=(paths::page("/stream")) { "Stream" } " shows whether it is behind."
        }
        (tabs("Types", types, model.type_name()))
        @if events.is_empty() && next.is_none() {
            p.empty { "There are no events of this type." }
        } @else {
            div.scroll tabindex="0" { table.bus {
                thead { tr { th { "Message" } th { "Aggregate" } th { "Data" } th { "Event" } } }
                tbody { @for (event, messages) in events.iter().zip(&messages) { (rows(event, messages)) } }
            } }
        }
        @if let Some(next) = next { p { a rel="next" href=(next) { "Older messages" } } }
    };
    Ok(Page::new("Messages", "Messages", content))
}

fn published(event: &IndexEntry) -> PublishedEvent {
    let IndexEntry { aggregate, seq_num, message_seq, .. } = event;
    PublishedEvent { aggregate: aggregate.clone(), seq_num: *seq_num, message_seq: *message_seq, messages_before: None }
}

fn rows(event: &IndexEntry, messages: &EventMessages) -> Markup {
    let rows = format!("{}/events/{}", paths::aggregate(&event.aggregate), event.seq_num);
    let at = time::relative_ms(event.event_id.timestamp_ms(), Timestamp::now());
    let line = |message: Markup, data: Markup| {
        html! {
            tr data-row {
                (message)
                td { a href=(paths::version(&event.aggregate, event.seq_num)) { (event.aggregate) } }
                td.data { (data) }
                td { (at) " " a.quiet href=(rows) { "rows" } }
            }
        }
    };
    html! {
        @for row in &messages.rows {
            (line(html! { td { strong { (row.message_type) } } }, json::line(data_of(&row.detail), 160)))
        }
        @for row in &messages.unreadable { (line(html! { td.bad { "cannot be read" } }, html! { (row) ": " (row.reason) })) }
        @if messages.gone() > 0 {
            (line(html! { td.hint { (messages.gone()) " no longer in the outbox" } }, html! {}))
        }
    }
}
