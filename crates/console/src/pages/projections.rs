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

/// How far a version of a projection is behind.
struct ProjectionLag<'a> {
    model: &'a dyn ProjectionModel,
    /// Whether readers get this version.
    is_read: bool,
    compared: usize,
    /// Whether an event before the compared ones may not be folded, either.
    is_cut: bool,
    /// Those that are not folded.
    behind: usize,
    /// The age of the oldest of these, in milliseconds.
    oldest_ms: Option<i64>,
    /// The number of suspended aggregates among those of the compared events.
    suspended: usize,
}

/// The section of the page; empty for a stack without read models.
pub(crate) async fn section(console: &Console) -> Markup {
    let Some(views) = &console.views else { return html! {} };
    let lags = lags(console, views).await;
    html! {
        section {
            h2 { "Projections" }
            @match &lags {
                Err(error) => p.notice.warn { "The views cannot be read: " (with_causes(error)) },
                Ok(lags) if lags.is_empty() => p.empty { "There are none." },
                Ok(lags) => {
                    div.scroll tabindex="0" { table {
                        thead { tr {
                            th { "Projection" } th { "Follows" } th.number { "Not folded" } th.number { "Lag" } th.number { "Suspended" }
                        } }
                        tbody { @for lag in lags { (row(lag)) } }
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

async fn lags<'a>(console: &Console, views: &'a Views) -> Result<Vec<ProjectionLag<'a>>, StoreError> {
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
    let mut lags = Vec::new();
    for name in projections.names() {
        let pointer = store.pointer(name).await?.map(|pointer| pointer.version);
        let read = projections.read_version(name, pointer).map(ProjectionModel::version);
        for model in projections.versions(name) {
            let followed: Vec<_> = model.follows().iter().filter_map(|of_type| latest.get(of_type)).collect();
            lags.push(lag(store, model, read, &followed, console.store.now()).await?);
        }
    }
    Ok(lags)
}

async fn lag<'a>(
    store: &ViewStore,
    model: &'a dyn ProjectionModel,
    read: Option<u32>,
    followed: &[&LatestEvents],
    now: Timestamp,
) -> Result<ProjectionLag<'a>, StoreError> {
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
    let age = |at: u64| now.as_millisecond() - i64::try_from(at).unwrap_or(i64::MAX);
    Ok(ProjectionLag {
        model,
        is_read: read == Some(model.version()),
        compared: events.len(),
        is_cut: followed.iter().any(|latest| is_cut_behind(latest)),
        behind: behind.len(),
        oldest_ms: oldest.map(age),
        suspended: positions.values().filter(|position| position.suspended.is_some()).count(),
    })
}

fn row(lag: &ProjectionLag<'_>) -> Markup {
    let ProjectionLag { model, is_read, compared, is_cut, behind, oldest_ms, suspended } = lag;
    html! {
        tr data-row {
            td {
                strong { (model.name()) } " version " (model.version()) " "
                @if *is_read { span.tag title="Readers get this version." { "read" } }
            }
            td { (model.follows().join(", ")) }
            td.number { @if *behind > 0 { span.warn { (behind) " of " (compared) } } @else { "0" } }
            td.number {
                @match oldest_ms {
                    None => "none",
                    Some(age) => span.warn { @if *is_cut { "at least " } (time::span_text(*age)) },
                }
            }
            td.number { @if *suspended > 0 { span.bad { (suspended) } } @else { "0" } }
        }
    }
}
