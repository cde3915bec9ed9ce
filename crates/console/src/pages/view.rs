//! *A view*: the rows of one version of a projection; and for a row, the events that it consists of, folded again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::extract::State;
use daybook_admin::AdminCalls;
use daybook_decider::{Json, RecordedEvent, personal};
use daybook_event_store::StoreError;
use daybook_projection::{ErasedChange, ProjectionModel};
use daybook_table::AggregateKey;
use daybook_view_store::{RowRange, View, ViewStore, part_of};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::Value;

use super::latest_events::{latest_events, pages};
use super::version::{changes, changes_markup};
use crate::console::{CONCURRENCY, Console};
use crate::frame::{Failure, Page, table, tabs};
use crate::request::{PagePath, PageQuery};
use crate::{json, paths, time};

const PAGE: usize = 50;

/// Maximum aggregates of a type, and events of all of them, that are folded to explain a row.
const MAX_AGGREGATES: usize = 200;
const MAX_EVENTS: u64 = 2_000;

#[derive(Deserialize)]
pub(crate) struct ListQuery {
    #[serde(default)]
    prefix: String,
    after: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct RowQuery {
    key: String,
}

/// A version of a projection, and its rows.
struct Shown<'a> {
    console: &'a Console,
    model: &'a dyn ProjectionModel,
    store: &'a ViewStore,
    view: View,
}

impl<'a> Shown<'a> {
    fn of(console: &'a Console, (name, version): (String, u32)) -> Result<Self, Failure> {
        let missing = || Failure::missing(format!("There is no version {version} of a projection {name}."));
        let views = console.views.as_ref().ok_or_else(missing)?;
        let model = views.projections.get(&name, version).ok_or_else(missing)?;
        Ok(Self { console, model, store: &views.store, view: View::new(name, version) })
    }

    fn row(&self, parts: &[Json]) -> Result<Option<String>, Failure> {
        // One that the projection cannot read is shown as it is stored.
        let row = self.model.merge(parts).or_else(|error| match parts {
            [only] => Ok(Some(only.clone())),
            _ => Err(Failure::invalid(error.to_string())),
        })?;
        Ok(row.map(|row| personal::shown(row.text()).into_owned()))
    }

    fn page(&self, content: &Markup) -> Page {
        let views = self.console.views.iter().flat_map(|views| views.projections.versions(self.model.name()));
        let versions: Vec<_> = views.map(|model| (format!("version {}", model.version()), model.version())).collect();
        let all = versions.iter().map(|(label, version)| (label.as_str(), paths::view(self.model.name(), *version)));
        let framed = html! {
            div.heading {
                h1 { a href=(paths::view(&self.view.name, self.view.version)) { (self.view.name) } }
                p.facts { "The rows of a projection of " (self.model.follows().join(", ")) "." }
            }
            @if versions.len() > 1 { (tabs("Versions", all, &format!("version {}", self.view.version))) }
            (content)
        };
        Page::new(self.view.to_string(), "Stream", framed)
    }
}

/// Lists rows in the order of their keys.
pub(crate) async fn page(
    State(console): State<Arc<Console>>,
    PagePath(path): PagePath<(String, u32)>,
    PageQuery(ListQuery { prefix, after }): PageQuery<ListQuery>,
) -> Result<Page, Failure> {
    let shown = Shown::of(&console, path)?;
    let range = RowRange { prefix: &prefix, after: after.as_deref(), ..RowRange::default() };
    let (found, more) = shown.store.list(&shown.view, shown.model.part_count(), range, PAGE).await?;
    let address = paths::view(&shown.view.name, shown.view.version);
    let next = found.last().filter(|_| more);
    let next = next.map(|last| paths::with_query(&address, &[("prefix", &prefix), ("after", &last.key)]));
    let rows = found.into_iter().map(|row| Ok((row.key, shown.row(&row.parts)?.unwrap_or_default())));
    let rows = rows.collect::<Result<Vec<_>, Failure>>()?;
    Ok(shown.page(&html! {
        form.filters action=(address) {
            label { "Key begins with" input name="prefix" value=(prefix) spellcheck="false" autocomplete="off"; }
            button { "Filter" }
            @if !prefix.is_empty() { a href=(address) { "Clear" } }
        }
        @if rows.is_empty() { p.empty { "There is no such row." } } @else {
            (table(&["Key", "Row"], &html! { @for (key, row) in &rows {
                tr data-row { td { a href=(paths::view_row(&shown.view, key)) { (key) } } td.data { (json::line(row, 300)) } }
            } }))
        }
        @if let Some(next) = next { p { a rel="next" href=(next) { "More rows" } } }
    }))
}

/// Shows a row beside what the events give that are folded into the view.
pub(crate) async fn row(
    State(console): State<Arc<Console>>,
    PagePath(path): PagePath<(String, u32)>,
    PageQuery(RowQuery { key }): PageQuery<RowQuery>,
) -> Result<Page, Failure> {
    let shown = Shown::of(&console, path)?;
    let found = shown.store.row(&shown.view, shown.model.part_count(), &key).await?;
    let stored = shown.row(&found.map_or_else(Vec::new, |found| found.parts))?;
    let history = RowHistory::of(&shown, &key).await?;
    Ok(shown.page(&html! {
        h2 { "Row " code { (key) } }
        div.split {
            section aria-label="Events" { (history.as_ref().map_or_else(too_many, |history| history.markup(&shown, stored.as_deref()))) }
            aside.panel aria-label="Row" {
                @match &stored { Some(row) => (json::block(row)), None => p.empty { "There is no such row." } }
            }
        }
    }))
}

fn too_many() -> Markup {
    html! { p.notice {
        "The view has more than " (MAX_AGGREGATES) " aggregates of a type or " (MAX_EVENTS) " events: that is too much for a page. "
        code { "daybook projection rebuild" } " folds all events into the rows of a new version."
    } }
}

/// What the events of a view give for one of its rows.
struct RowHistory {
    /// The events that change the row, in the order of their times, each with the row after it.
    causes: Vec<(AggregateKey, RecordedEvent, Option<String>)>,
    /// The aggregates with an event that cannot be folded.
    stopped: Vec<(AggregateKey, String)>,
}

/// The events of an aggregate up to a number, or why they cannot be read.
async fn history(
    console: &Console,
    aggregate: &AggregateKey,
    through: u64,
) -> Result<Result<Vec<RecordedEvent>, String>, StoreError> {
    let (mut events, mut last) = (Vec::new(), 0);
    while last < through {
        match console.store.admin().events_up_to(aggregate, last, through).await? {
            Ok(more) => events.extend(more),
            Err(reason) => return Ok(Err(reason)),
        }
        last = events.last().map_or(through, |event: &RecordedEvent| event.seq_num);
    }
    Ok(Ok(events))
}

impl RowHistory {
    /// Folds the events that the view has; `None` if these are too many.
    async fn of(shown: &Shown<'_>, key: &str) -> Result<Option<Self>, Failure> {
        let mut aggregates = BTreeSet::new();
        for of_type in shown.model.follows() {
            let Some(model) = shown.console.registry.get(of_type) else { continue };
            let pages = pages(shown.console, &shown.console.partitions(model), None, MAX_AGGREGATES + 1).await?;
            let found = latest_events(pages.iter(), MAX_AGGREGATES, |entry| entry.aggregate.aggregate_type == *of_type);
            if found.next.is_some() {
                return Ok(None);
            }
            aggregates.extend(found.events.into_iter().map(|entry| entry.aggregate));
        }
        let positions = shown.store.positions(&shown.view, &aggregates).await?;
        if positions.values().map(|position| position.seq_num).sum::<u64>() > MAX_EVENTS {
            return Ok(None);
        }
        let reads = positions.into_iter().map(async |(aggregate, position)| {
            let events = history(shown.console, &aggregate, position.seq_num).await?;
            Ok::<_, Failure>((aggregate, events))
        });
        let histories: Vec<_> = stream::iter(reads).buffered(CONCURRENCY).try_collect().await?;
        let (mut changed, mut stopped) = (Vec::new(), Vec::new());
        for (aggregate, events) in histories {
            let events = match events {
                Ok(events) => events,
                Err(reason) => {
                    stopped.push((aggregate, reason));
                    continue;
                }
            };
            let advanced = shown.model.advance(&aggregate.aggregate_type, &aggregate.id, None, &events);
            stopped.extend(advanced.stopped.map(|reason| (aggregate.clone(), reason.to_string())));
            for (event, step) in events.into_iter().zip(advanced.steps) {
                let changes: Vec<_> = step.changes.into_iter().filter(|(row, _)| row == key).collect();
                if !changes.is_empty() {
                    changed.push((aggregate.clone(), event, changes));
                }
            }
        }
        changed.sort_by_key(|(_, event, _)| event.event_id);
        let (mut parts, mut causes): (BTreeMap<u32, Json>, _) = (BTreeMap::new(), Vec::new());
        for (aggregate, event, changes) in changed {
            let changes: Vec<&ErasedChange> = changes.iter().map(|(_, change)| change).collect();
            let part = part_of(&aggregate, shown.model.part_count());
            let row = shown.model.apply(parts.get(&part), &changes);
            match row.map_err(|error| Failure::invalid(format!("{aggregate} event {}: {error}", event.seq_num)))? {
                Some(row) => parts.insert(part, row),
                None => parts.remove(&part),
            };
            let row = shown.row(&parts.values().cloned().collect::<Vec<_>>())?;
            causes.push((aggregate, event, row));
        }
        Ok(Some(Self { causes, stopped }))
    }

    fn markup(&self, shown: &Shown<'_>, stored: Option<&str>) -> Markup {
        let value = |row: Option<&str>| row.and_then(|row| serde_json::from_str::<Value>(row).ok());
        let between = |before: Option<&str>, after: Option<&str>| {
            let [before, after] =
                [before, after].map(|row| value(row).unwrap_or_else(|| Value::Object(Default::default())));
            changes_markup(&changes(&before, &after))
        };
        let last = self.causes.last().and_then(|(.., row)| row.as_deref());
        let before = [None].into_iter().chain(self.causes.iter().map(|(.., row)| row.as_deref()));
        let causes: Vec<_> = self.causes.iter().zip(before).collect();
        html! {
            @if value(last) == value(stored) {
                p.notice.good { "The row is what the " (causes.len()) " events give that change it." }
            } @else {
                div.notice.warn role="status" {
                    p { "The events give another row. Before: what is stored. After: what the code of today gives from the events that the view has." }
                    (between(stored, last))
                    p.hint {
                        "That is right if an event was folded meanwhile (load the page again), if a personal value was forgotten, or if "
                        "the row depends on the order of events of several aggregates: here, it is that of their times."
                    }
                }
            }
            @for (aggregate, reason) in &self.stopped {
                p.notice.bad { a href=(paths::aggregate(aggregate)) { (aggregate) } " cannot be folded: " (reason) }
            }
            ol.events { @for ((aggregate, event, row), before) in causes.iter().rev() {
                li data-row {
                    p {
                        strong { (event.event_type) } " "
                        a href=(paths::version(aggregate, event.seq_num)) { (aggregate) " " (event.seq_num) } " "
                        span.when { (time::relative(event.occurred_at, shown.console.store.now())) }
                    }
                    (between(*before, row.as_deref()))
                }
            } }
        }
    }
}
