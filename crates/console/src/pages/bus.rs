//! *Bus*: the messages that the bus accepted, the latest first, with filters.

use std::sync::Arc;

use axum::extract::State;
use jiff::Timestamp;
use maud::{Markup, html};
use serde::Deserialize;

use crate::console::Console;
use crate::failure::Failure;
use crate::markup::frame::{Frame, Page};
use crate::markup::{json, time};
use crate::paths;
use crate::query::{PageQuery, position_or_empty};
use crate::stack::{BusMessage, MessageMetadata};

/// Messages on a page.
const PAGE: usize = 100;

/// Which messages.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct BusFilter {
    /// Only those whose type contains the text.
    #[serde(rename = "type")]
    message_type: String,
    /// Only those of an aggregate, or of a type.
    aggregate: String,
    /// Only those that contain the text.
    containing: String,
    /// Only those before the position.
    #[serde(deserialize_with = "position_or_empty")]
    before: String,
}

impl BusFilter {
    /// The filter as a query of the stack.
    pub(crate) fn query<'a>(&'a self, aggregate: &'a str) -> Vec<(&'static str, &'a str)> {
        let all = [
            ("messageType", self.message_type.trim()),
            ("aggregate", aggregate),
            ("containing", self.containing.trim()),
            ("before", &self.before),
        ];
        all.into_iter().filter(|(_, value)| !value.is_empty()).collect()
    }

    /// The aggregate as the stack expects it: a type without an id ends with a slash.
    pub(crate) fn aggregate(&self) -> String {
        let wanted = self.aggregate.trim();
        if wanted.is_empty() || wanted.contains('/') { wanted.to_owned() } else { format!("{wanted}/") }
    }

    /// The filter as a query of the console.
    fn of_page(&self) -> Vec<(&'static str, &str)> {
        let all = [("type", &self.message_type), ("aggregate", &self.aggregate), ("containing", &self.containing)];
        all.into_iter().map(|(name, value)| (name, value.as_str())).filter(|(_, value)| !value.is_empty()).collect()
    }
}

/// Shows the latest messages.
pub(crate) async fn page(
    State(console): State<Arc<Console>>,
    PageQuery(filter): PageQuery<BusFilter>,
) -> Result<Page, Failure> {
    let (aggregate, limit) = (filter.aggregate(), PAGE.to_string());
    let mut query = filter.query(&aggregate);
    query.push(("limit", &limit));
    let part = console.stack.bus(&query).await?;
    let is_first_page = filter.before.is_empty();
    let last = part.last.to_string();
    let mut live = filter.of_page();
    live.push(("after", &last));
    let live = paths::with_query(&paths::page("/bus/live"), &live);
    // The bus compares only the latest messages with a filter. Older ones are a page further.
    let is_cut = part.searched_from > 1;
    let oldest_shown =
        part.messages.first().filter(|_| part.matching > part.messages.len()).map(|first| first.position);
    let older = oldest_shown.or(is_cut.then_some(part.searched_from)).map(|before| {
        let before = before.to_string();
        let mut query = filter.of_page();
        query.push(("before", &before));
        paths::with_query(&paths::page("/bus"), &query)
    });
    let now = console.store.now();
    let content = html! {
        h1 { "Bus" }
        p.facts { strong { (part.last) } " messages so far"
            @if part.matching != part.last { ", " strong { (part.matching) } " match" }
            @if is_cut { " in those from No. " (part.searched_from) " on" } }
        form.filters action=(paths::page("/bus")) {
            label { "Message type" input name="type" value=(filter.message_type) placeholder="OrderPlaced" spellcheck="false"; }
            label { "Aggregate" input name="aggregate" value=(filter.aggregate) placeholder="order/1 or order" spellcheck="false"; }
            label { "Containing" input name="containing" value=(filter.containing) placeholder="any text of the message" spellcheck="false"; }
            button { "Filter" }
            @if !filter.of_page().is_empty() { a href=(paths::page("/bus")) { "Clear" } }
        }
        @if is_first_page {
            p.live data-live=(live) hidden {
                button type="button" data-pause aria-pressed="false" { "Pause" }
                span data-status { "New messages appear here." }
                span.hidden role="status" {}
            }
        }
        @if part.messages.is_empty() {
            p.empty { @if part.last == 0 { "No message has reached the bus yet. " a href=(paths::page("")) { "Send a command" } " first." } @else { "No message matches." } }
        }
        div.scroll tabindex="0" { table.bus hidden[part.messages.is_empty() && !is_first_page] {
            thead { tr { th.number { "No." } th { "Message" } th { "Aggregate" } th { "Data" } th { "Accepted" } } }
            tbody data-rows { @for message in part.messages.iter().rev() { (row(message, now)) } }
        } }
        @if let Some(older) = older { p { a rel="next" href=(older) { "Older messages" } } }
    };
    Ok(Frame::new("Bus").below("Bus").with(content))
}

/// A message as a row of the table.
pub(crate) fn row(message: &BusMessage, now: Timestamp) -> Markup {
    let metadata = MessageMetadata::of_detail(&message.detail);
    html! {
        tr data-row {
            td.number { a href={ (paths::page("/bus")) "/" (message.position) } title="The whole message" { (message.position) } }
            td { strong { (message.detail_type) }
                @if let Some(id) = &metadata.correlation_id { " " a.quiet href=(paths::correlation(id)) { "correlation" } } }
            td {
                @for resource in &message.resources {
                    @match resource.split_once('/') {
                        Some((of_type, id)) if metadata.seq_num > 0 =>
                            a href={ (paths::aggregate_of(of_type, id)) "?version=" (metadata.seq_num) } { (resource) },
                        _ => (resource),
                    }
                }
            }
            td.data { (json::line(data_of(&message.detail), 160)) }
            td { @if let Some(at) = message.accepted_at { (time::relative_ms(at, now)) } }
        }
    }
}

/// The data in a detail, or the whole detail of another sender.
pub(crate) fn data_of(detail: &str) -> &str {
    #[derive(Deserialize)]
    struct Detail<'a> {
        #[serde(borrow)]
        data: &'a serde_json::value::RawValue,
    }
    serde_json::from_str::<Detail<'_>>(detail).map_or(detail, |found| found.data.get())
}
