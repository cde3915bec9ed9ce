//! The projections on page *Stream*: how far each of them is behind the events, and the suspended aggregates, which can be resumed.
//!
//! A view contains, for each aggregate, the number of the last event that is folded. So the latest events of the types
//! that a projection follows show whether it is behind, whatever the size of the view.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::extract::State;
use axum::response::Redirect;
use daybook_admin::IndexEntry;
use daybook_event_store::StoreError;
use daybook_function_runtime::with_causes;
use daybook_projection::ProjectionModel;
use daybook_table::AggregateKey;
use daybook_view_store::{SuspendedAggregate, View, ViewStore};
use jiff::Timestamp;
use maud::{Markup, html};
use serde::Deserialize;

use super::latest_events::{LatestEvents, latest_events, pages};
use crate::console::{Console, Views};
use crate::frame::{Failure, table};
use crate::request::{self, PostedForm};
use crate::stack::StackError;
use crate::{paths, time};

/// The number of the latest events of each followed type that are compared with the view.
const COMPARED: usize = 50;

/// What was done before the page was shown.
#[derive(Deserialize)]
pub(crate) struct Done {
    resumed: Option<usize>,
}

/// Resumes the selected aggregates in all views, as `daybook projection resume` does.
pub(crate) async fn resume(State(console): State<Arc<Console>>, form: PostedForm) -> Result<Redirect, Failure> {
    let selected = form.values("aggregate").filter_map(|name| name.parse().ok()).collect();
    // A task of its own finishes it, even if the browser hangs up.
    let resumed = tokio::spawn(async move { resume_all(&console, selected).await }).await;
    let resumed = resumed.unwrap_or_else(|error| Err(StackError(error.to_string()).into()))?;
    // Another page, because loading this one again would send the form again.
    Ok(Redirect::to(&paths::with_query(&paths::page("/stream"), &[("resumed", &resumed.to_string())])))
}

/// Returns the number of those that were suspended.
async fn resume_all(console: &Console, selected: BTreeSet<AggregateKey>) -> Result<usize, Failure> {
    let Some(Views { projections, store }) = &console.views else { return Ok(0) };
    let mut resumed = BTreeSet::new();
    for aggregate in selected {
        for model in projections.following(&aggregate.aggregate_type) {
            let view = View::new(model.name(), model.version());
            let send = |event| console.stack.project(aggregate.clone(), event);
            if store.resume_and_send(&view, &aggregate, console.store.now(), send).await?? {
                resumed.insert(aggregate.clone());
            }
        }
    }
    Ok(resumed.len())
}

/// The section of the page; empty for a stack without read models.
pub(crate) async fn section(console: &Console, Done { resumed }: Done) -> Markup {
    let Some(views) = &console.views else { return html! {} };
    let lags = lags(console, views).await;
    html! {
        section {
            h2 { "Projections" }
            @match resumed {
                None => {}
                Some(0) => p.notice.warn role="status" { "Nothing was resumed: none of the selected aggregates is suspended." },
                Some(count) => p.notice.good role="status" {
                    (count) @if count == 1 { " aggregate was" } @else { " aggregates were" } " resumed."
                    " An event that still cannot be folded suspends its aggregate again."
                },
            }
            @match &lags {
                Err(error) => p.notice.warn { "The views cannot be read: " (with_causes(error)) },
                Ok(lags) if lags.is_empty() => p.empty { "There are none." },
                Ok(lags) => {
                    (table(&["Projection", "Follows", "#Not folded", "#Lag", "#Suspended"], &html! { @for lag in lags { (row(lag)) } }))
                    p.hint {
                        "The latest " (COMPARED) " events of each followed type are compared with the view. The lag is the age of the "
                        "oldest of them that it does not contain. " code { "daybook projection suspended" } " lists all suspended aggregates."
                    }
                    (suspended_markup(console, lags))
                }
            }
        }
    }
}

pub(crate) struct Lag {
    pub(crate) view: View,
    /// Whether readers get this version.
    is_read: bool,
    follows: String,
    /// The number of compared events, and of those that are not folded.
    compared: usize,
    pub(crate) behind: usize,
    /// The age of the oldest of these.
    age: Option<String>,
    suspended: Vec<SuspendedAggregate>,
}

pub(crate) async fn lags(console: &Console, views: &Views) -> Result<Vec<Lag>, StoreError> {
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
            let is_read = read == Some(model.version());
            lags.push(Lag { is_read, ..lag(store, model, &followed, console.store.now()).await? });
        }
    }
    Ok(lags)
}

async fn lag(
    store: &ViewStore,
    model: &dyn ProjectionModel,
    followed: &[&LatestEvents],
    now: Timestamp,
) -> Result<Lag, StoreError> {
    let events: Vec<_> = followed.iter().flat_map(|latest| &latest.events).collect();
    let aggregates: BTreeSet<_> = events.iter().map(|event| event.aggregate.clone()).collect();
    let view = View::new(model.name(), model.version());
    let positions = if aggregates.is_empty() { BTreeMap::new() } else { store.positions(&view, &aggregates).await? };
    let is_folded =
        |event: &IndexEntry| positions.get(&event.aggregate).is_some_and(|position| event.seq_num <= position.seq_num);
    let behind: Vec<_> = events.iter().filter(|event| !is_folded(event)).collect();
    let is_cut_behind =
        |latest: &LatestEvents| latest.next.is_some() && latest.events.last().is_some_and(|oldest| !is_folded(oldest));
    // An event before the compared ones may not be folded, either.
    let least = if followed.iter().any(|latest| is_cut_behind(latest)) { "at least " } else { "" };
    let age = |at: u64| time::span_text(now.as_millisecond() - i64::try_from(at).unwrap_or(i64::MAX));
    let oldest = behind.iter().map(|event| event.event_id.timestamp_ms()).min();
    let suspended = positions.iter().filter_map(|(aggregate, position)| {
        let (reason, aggregate) = (position.suspended.clone()?, aggregate.clone());
        Some(SuspendedAggregate { view: view.clone(), aggregate, seq_num: position.seq_num, reason })
    });
    Ok(Lag {
        is_read: false,
        follows: model.follows().join(", "),
        compared: events.len(),
        behind: behind.len(),
        age: oldest.map(|at| format!("{least}{}", age(at))),
        suspended: suspended.collect(),
        view,
    })
}

fn row(Lag { view, is_read, follows, compared, behind, age, suspended }: &Lag) -> Markup {
    html! {
        tr data-row {
            td {
                a href=(paths::view(&view.name, view.version)) { strong { (view.name) } " version " (view.version) } " "
                @if *is_read { span.tag title="Readers get this version." { "read" } }
            }
            td { (follows) }
            td.number { @if *behind == 0 { "0" } @else { span.warn { (behind) " of " (compared) } } }
            td.number { @match age { None => "none", Some(age) => span.warn { (age) } } }
            td.number { @if suspended.is_empty() { "0" } @else { span.bad { (suspended.len()) } } }
        }
    }
}

fn suspended_markup(console: &Console, lags: &[Lag]) -> Markup {
    let suspended: Vec<_> = lags.iter().flat_map(|lag| &lag.suspended).collect();
    if suspended.is_empty() {
        return html! {};
    }
    let writes = console.allows_writes();
    let table = html! {
        div.scroll tabindex="0" { table {
            thead { tr { @if writes { th { span.hidden { "Select" } } } th { "Suspended" } th { "Projection" } th { "Why" } } }
            tbody { @for SuspendedAggregate { view, aggregate, seq_num, reason } in suspended {
                @let event = seq_num + 1;
                tr data-row {
                    @if writes { td { input type="checkbox" name="aggregate" value=(aggregate) aria-label={ "Select " (aggregate) }; } }
                    td { a href={ (paths::aggregate(aggregate)) "/events/" (event) } { (aggregate) " " (event) } }
                    td { (view.name) " version " (view.version) } td { span.hint { (reason) } }
                }
            } }
        } }
    };
    html! {
        @if writes {
            form method="post" action=(paths::page("/projections")) {
                (request::token(&console.form_token))
                p.actions { button.primary { "Resume the selected" } }
                (table)
            }
        } @else { (table) }
    }
}
