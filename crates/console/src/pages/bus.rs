//! *Bus*: the messages that the bus accepted, the latest first, with filters; and those that arrive, as server-sent events. At a
//! high rate, only some of these are sent, and the page says so.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use daybook_local_aws::messaging::{Delivered, FoundMessage, MessageQuery};
use futures_util::stream::{Stream, unfold};
use jiff::Timestamp;
use maud::{Markup, html};
use serde::Deserialize;

use super::live;
use crate::console::Console;
use crate::frame::{Failure, Page};
use crate::request::PageQuery;
use crate::stack::MessageMetadata;
use crate::{json, paths, time};

const PAGE: usize = 100;

/// The pause between two reads of the messages that arrive.
const PAUSE: Duration = Duration::from_millis(500);

/// Maximum arrived messages that are sent after each pause.
const SAMPLE: usize = 20;

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct BusFilter {
    #[serde(rename = "type")]
    message_type: String,
    /// Only those of an aggregate, or of a type.
    aggregate: String,
    containing: String,
    before: Option<usize>,
}

impl BusFilter {
    fn query(&self) -> MessageQuery {
        let given = |text: &str| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
        let aggregate = given(&self.aggregate);
        MessageQuery {
            aggregate: aggregate.map(|wanted| if wanted.contains('/') { wanted } else { format!("{wanted}/") }),
            message_type: given(&self.message_type),
            containing: given(&self.containing),
            before: self.before,
            ..MessageQuery::default()
        }
    }

    fn address(&self, page: &str, name: &'static str, position: usize) -> String {
        let position = position.to_string();
        let mut query = self.of_page();
        query.push((name, &position));
        paths::with_query(&paths::page(page), &query)
    }

    /// The filter as a query of the console.
    fn of_page(&self) -> Vec<(&'static str, &str)> {
        let all = [("type", &self.message_type), ("aggregate", &self.aggregate), ("containing", &self.containing)];
        all.into_iter().map(|(name, value)| (name, value.as_str())).filter(|(_, value)| !value.is_empty()).collect()
    }
}

pub(crate) async fn page(
    State(console): State<Arc<Console>>,
    PageQuery(filter): PageQuery<BusFilter>,
) -> Result<Page, Failure> {
    let part = console.stack.messages(MessageQuery { limit: Some(PAGE), ..filter.query() }).await?;
    let is_first_page = filter.before.is_none();
    let arriving = filter.address("/bus/live", "after", part.last);
    // The bus compares only the latest messages with a filter. Older ones are a page further.
    let is_cut = part.searched_from > 1;
    let oldest_shown =
        part.messages.first().filter(|_| part.matching > part.messages.len()).map(|first| first.position);
    let older = oldest_shown.or(is_cut.then_some(part.searched_from));
    let older = older.map(|before| filter.address("/bus", "before", before));
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
        @if is_first_page { (live::controls(&arriving, "messages")) }
        @if part.messages.is_empty() {
            p.empty { @if part.last == 0 { "No message has reached the bus yet. " a href=(paths::page("")) { "Send a command" } " first." } @else { "No message matches." } }
        }
        div.scroll tabindex="0" { table.bus hidden[part.messages.is_empty() && !is_first_page] {
            thead { tr { th.number { "No." } th { "Message" } th { "Aggregate" } th { "Data" } th { "Accepted" } } }
            tbody data-rows { @for message in part.messages.iter().rev() { (row(message, now)) } }
        } }
        @if let Some(older) = older { p { a rel="next" href=(older) { "Older messages" } } }
    };
    Ok(Page::new("Bus", "Bus", content))
}

#[derive(Deserialize)]
pub(crate) struct LiveQuery {
    after: usize,
}

pub(crate) async fn live(
    State(console): State<Arc<Console>>,
    PageQuery(LiveQuery { after }): PageQuery<LiveQuery>,
    PageQuery(filter): PageQuery<BusFilter>,
    headers: HeaderMap,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    // A browser that connects again names the last event that it has.
    let last_event = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let after = last_event.unwrap_or(after);
    let events = unfold((console, filter, after), async |(console, filter, mut after)| {
        loop {
            tokio::time::sleep(PAUSE).await;
            let query = MessageQuery { after: Some(after), limit: Some(SAMPLE), ..filter.query() };
            let part = match console.stack.messages(query).await {
                Ok(part) => part,
                Err(error) => {
                    return Some((Ok(live::failure(&error.to_string())), (console, filter, after)));
                }
            };
            after = part.last;
            if part.matching == 0 {
                continue;
            }
            let now = console.store.now();
            let rows = part.messages.iter().rev().map(|message| row(message, now));
            return Some((Ok(live::arrived(after, rows, part.matching)), (console, filter, after)));
        }
    });
    Sse::new(events).keep_alive(KeepAlive::default())
}

fn row(FoundMessage { position, entry, .. }: &FoundMessage, now: Timestamp) -> Markup {
    let Delivered { detail_type, detail, resources, accepted_at, .. } = entry;
    let metadata = MessageMetadata::of_detail(detail);
    html! {
        tr data-row {
            td.number { a href={ (paths::page("/bus")) "/" (position) } title="The whole message" { (position) } }
            td { strong { (detail_type) }
                @if let Some(id) = &metadata.correlation_id { " " a.quiet href=(paths::correlation(id)) { "correlation" } } }
            td {
                @for resource in resources {
                    @match resource.split_once('/') {
                        Some((of_type, id)) if metadata.seq_num > 0 =>
                            a href={ (paths::aggregate_of(of_type, id)) "?version=" (metadata.seq_num) } { (resource) },
                        _ => (resource),
                    }
                }
            }
            td.data { (json::line(data_of(detail), 160)) }
            td { @if let Some(at) = accepted_at { (time::relative_ms(*at, now)) } }
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
