//! *Events*: the latest events of all types or of one, and those that are appended while the page is open, as server-sent events.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use daybook_admin::IndexEntry;
use daybook_decider::{Model, RecordedEvent, personal};
use daybook_table::AggregateKey;
use futures_util::stream::{self, Stream, StreamExt, TryStreamExt, unfold};
use jiff::Timestamp;
use maud::{Markup, html};
use serde::Deserialize;
use ulid::Ulid;

use super::latest_events::{LatestEvents, latest_events, pages, position};
use super::live;
use crate::console::{CONCURRENCY, Console};
use crate::frame::{Failure, Page};
use crate::request::PageQuery;
use crate::{json, paths, time};

/// Events on the page, and the maximum that arrive at once.
const PAGE: usize = 50;

/// The pause between two reads of the index.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct EventFilter {
    #[serde(rename = "type")]
    of_type: String,
    /// A text in the name or the data.
    containing: String,
    /// Only events before this one.
    before: Option<String>,
}

impl EventFilter {
    fn address(&self, path: &str) -> String {
        paths::with_query(&paths::page(path), &[("type", &self.of_type), ("containing", &self.containing)])
    }

    fn selects(&self, event: &RecordedEvent) -> bool {
        let wanted = self.containing.trim();
        event.event_type.contains(wanted) || personal::shown(event.data.text()).contains(wanted)
    }

    /// The latest events of the type in the index, before the one that the filter names.
    async fn latest(&self, console: &Console) -> Result<LatestEvents, Failure> {
        let before = self.before.as_deref().map(position).transpose()?;
        let is_wanted = |of_type: &str| self.of_type.is_empty() || self.of_type == of_type;
        let models = console.registry.iter().filter(|model| is_wanted(model.type_name()));
        let partitions: Vec<_> = models.flat_map(|model| console.partitions_of_events(model)).collect();
        let pages = pages(console, &partitions, before, PAGE).await?;
        Ok(latest_events(pages.iter(), PAGE, |entry| is_wanted(&entry.aggregate.aggregate_type)))
    }

    /// Those of the events that the filter selects.
    async fn read(
        &self,
        console: &Console,
        entries: impl Iterator<Item = IndexEntry>,
    ) -> Result<Vec<(AggregateKey, RecordedEvent)>, Failure> {
        let reads = entries.map(async |entry| {
            let event = console.store.events(&entry.aggregate, entry.seq_num - 1, 1).await?.items.pop();
            Ok::<_, Failure>(event.filter(|event| self.selects(event)).map(|event| (entry.aggregate, event)))
        });
        stream::iter(reads).buffered(CONCURRENCY).try_filter_map(async |found| Ok(found)).try_collect().await
    }
}

pub(crate) async fn page(
    State(console): State<Arc<Console>>,
    PageQuery(mut filter): PageQuery<EventFilter>,
) -> Result<Page, Failure> {
    if filter.of_type.is_empty() && !console.is_local() {
        // On AWS, each index partition of all types would be read.
        filter.of_type = console.registry.iter().next().map(Model::type_name).unwrap_or_default().to_owned();
    }
    let LatestEvents { events, next } = filter.latest(&console).await?;
    let events = filter.read(&console, events.into_iter()).await?;
    let is_live = console.is_local() && filter.before.is_none();
    let older = next.map(|before| format!("{}&before={before}", filter.address("/events")));
    let content = html! {
        h1 { "Events" }
        p.facts { "Up to " (PAGE) " events, the latest first" @if !filter.containing.is_empty() { ": those of them that contain the text" } "." }
        form.filters action=(paths::page("/events")) {
            label { "Aggregate type" select name="type" {
                @if console.is_local() { option value="" { "all" } }
                @for name in console.registry.iter().map(Model::type_name) {
                    option value=(name) selected[name == filter.of_type] { (name) }
                }
            } }
            label { "Containing" input name="containing" value=(filter.containing) placeholder="any text of the event" spellcheck="false"; }
            button { "Filter" }
        }
        @if is_live { (live::controls(&filter.address("/events/live"), "events")) }
        @if events.is_empty() {
            p.empty { @if older.is_some() { "None of these events matches; older ones may." } @else { "There is no such event." } }
        }
        div.scroll tabindex="0" { table {
            thead { tr { th { "Event" } th { "Aggregate" } th { "Data" } th { "At" } } }
            tbody data-rows { @for event in &events { (row(event, console.store.now())) } }
        } }
        @if let Some(older) = older { p { a rel="next" href=(older) { "Older events" } } }
    };
    Ok(Page::new("Events", "Events", content))
}

/// Streams the events that are appended from now on, or after the last one that a browser has which connects again.
pub(crate) async fn live(
    State(console): State<Arc<Console>>,
    PageQuery(filter): PageQuery<EventFilter>,
    headers: HeaderMap,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let last_event = headers.get("last-event-id").and_then(|id| Ulid::from_string(id.to_str().ok()?).ok());
    let seen = last_event.map(|id| BTreeSet::from([id]));
    let events = unfold((console, filter, seen), async |(console, filter, mut seen)| {
        loop {
            let event = match arrived(&console, &filter, &mut seen).await {
                Ok((_, 0, _)) => {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
                Ok((events, count, last)) => {
                    let now = console.store.now();
                    live::arrived(last, events.iter().map(|event| row(event, now)), count)
                }
                Err(failure) => {
                    tokio::time::sleep(PAUSE).await;
                    live::failure(&failure.detail)
                }
            };
            return Some((Ok(event), (console, filter, seen)));
        }
    });
    Sse::new(events).keep_alive(KeepAlive::default())
}

/// The selected events that are not seen yet, none if nothing was seen; their number, more if some of them are not in the latest ones
/// any more; and the id of the last event in the index.
async fn arrived(
    console: &Console,
    filter: &EventFilter,
    seen: &mut Option<BTreeSet<Ulid>>,
) -> Result<(Vec<(AggregateKey, RecordedEvent)>, usize, Ulid), Failure> {
    let latest = filter.latest(console).await?.events;
    // An event may get its place before one that is in the index already.
    let ids: BTreeSet<_> = latest.iter().map(|entry| entry.event_id).collect();
    let last = ids.last().copied().unwrap_or_default();
    let Some(before) = seen.as_ref() else {
        *seen = Some(ids);
        return Ok((Vec::new(), 0, last));
    };
    let first = before.first().copied().unwrap_or_default();
    let is_new = |entry: &IndexEntry| entry.event_id > first && !before.contains(&entry.event_id);
    let new: Vec<_> = latest.into_iter().filter(is_new).collect();
    let are_missing = new.len() == PAGE && !before.is_empty();
    let events = filter.read(console, new.into_iter()).await?;
    let count = events.len() + usize::from(are_missing);
    *seen = Some(ids);
    Ok((events, count, last))
}

fn row((aggregate, event): &(AggregateKey, RecordedEvent), now: Timestamp) -> Markup {
    html! {
        tr data-row {
            td { strong { (event.event_type) } }
            td { a href=(paths::version(aggregate, event.seq_num)) { (aggregate) " " (event.seq_num) } }
            td.data { (json::line(&personal::shown(event.data.text()), 160)) }
            td { (time::relative(event.occurred_at, now)) }
        }
    }
}
