//! The projections on page *Stream*: how far each of them is behind the events.
//!
//! A view contains, for each aggregate, the number of the last event that is folded. So the latest events of the types
//! that a projection follows show whether it is behind, whatever the size of the view.

use std::collections::{BTreeMap, BTreeSet};

use daybook_admin::IndexEntry;
use daybook_event_store::StoreError;
use daybook_function_runtime::with_causes;
use daybook_projection::ProjectionModel;
use daybook_view_store::{View, ViewStore};
use jiff::Timestamp;
use maud::{Markup, html};

use super::latest_events::{LatestEvents, latest_events, pages};
use crate::console::{Console, Views};
use crate::time;

/// The number of the latest events of each followed type that are compared with the view.
const COMPARED: usize = 50;

/// The section of the page; empty for a stack without read models.
pub(crate) async fn section(console: &Console) -> Markup {
    let Some(views) = &console.views else { return html! {} };
    let rows = rows(console, views).await;
    html! {
        section {
            h2 { "Projections" }
            @match &rows {
                Err(error) => p.notice.warn { "The views cannot be read: " (with_causes(error)) },
                Ok(rows) if rows.is_empty() => p.empty { "There are none." },
                Ok(rows) => {
                    div.scroll tabindex="0" { table {
                        thead { tr {
                            th { "Projection" } th { "Follows" } th.number { "Not folded" } th.number { "Lag" } th.number { "Suspended" }
                        } }
                        tbody { @for row in rows { (row) } }
                    } }
                    p.hint {
                        "The latest " (COMPARED) " events of each followed type are compared with the view. The lag is the age of the "
                        "oldest of them that it does not contain. " code { "daybook projection suspended" } " lists all suspended aggregates."
                    }
                }
            }
        }
    }
}

/// A row for each version of a projection.
async fn rows(console: &Console, views: &Views) -> Result<Vec<Markup>, StoreError> {
    let Views { projections, store } = views;
    let followed: BTreeSet<_> = projections.iter().flat_map(ProjectionModel::follows).copied().collect();
    let mut latest = BTreeMap::new();
    for of_type in followed {
        if let Some(model) = console.registry.get(of_type) {
            let pages = pages(console, &console.partitions_of_events(model), None, COMPARED).await?;
            let is_of_type = |event: &IndexEntry| event.aggregate.aggregate_type == of_type;
            latest.insert(of_type, latest_events(pages.iter(), COMPARED, is_of_type));
        }
    }
    let mut rows = Vec::new();
    for name in projections.names() {
        let pointer = store.pointer(name).await?.map(|pointer| pointer.version);
        let read = projections.read_version(name, pointer).map(ProjectionModel::version);
        for model in projections.versions(name) {
            let followed: Vec<_> = model.follows().iter().filter_map(|of_type| latest.get(of_type)).collect();
            rows.push(row(store, model, read, &followed, console.store.now()).await?);
        }
    }
    Ok(rows)
}

/// How far a version of a projection is behind.
async fn row(
    store: &ViewStore,
    model: &dyn ProjectionModel,
    read: Option<u32>,
    followed: &[&LatestEvents],
    now: Timestamp,
) -> Result<Markup, StoreError> {
    let events: Vec<_> = followed.iter().flat_map(|latest| &latest.events).collect();
    let aggregates: BTreeSet<_> = events.iter().map(|event| event.aggregate.clone()).collect();
    let positions = match aggregates.is_empty() {
        true => BTreeMap::new(),
        false => store.positions(&View::new(model.name(), model.version()), &aggregates).await?,
    };
    let is_folded =
        |event: &IndexEntry| positions.get(&event.aggregate).is_some_and(|position| event.seq_num <= position.seq_num);
    let behind: Vec<_> = events.iter().filter(|event| !is_folded(event)).collect();
    let is_cut_behind =
        |latest: &LatestEvents| latest.next.is_some() && latest.events.last().is_some_and(|oldest| !is_folded(oldest));
    let oldest = behind.iter().map(|event| event.event_id.timestamp_ms()).min();
    let age = |at: u64| time::span_text(now.as_millisecond() - i64::try_from(at).unwrap_or(i64::MAX));
    // An event before the compared ones may not be folded, either.
    let is_cut = followed.iter().any(|latest| is_cut_behind(latest));
    let suspended = positions.values().filter(|position| position.suspended.is_some()).count();
    Ok(html! {
        tr data-row {
            td {
                strong { (model.name()) } " version " (model.version()) " "
                @if read == Some(model.version()) { span.tag title="Readers get this version." { "read" } }
            }
            td { (model.follows().join(", ")) }
            td.number { @if behind.is_empty() { "0" } @else { span.warn { (behind.len()) " of " (events.len()) } } }
            td.number {
                @match oldest {
                    None => "none",
                    Some(at) => span.warn { @if is_cut { "at least " } (age(at)) },
                }
            }
            td.number { @if suspended > 0 { span.bad { (suspended) } } @else { "0" } }
        }
    })
}
