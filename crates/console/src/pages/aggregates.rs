//! *Aggregates*: the types, and the latest aggregates.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::extract::{Query, State};
use daybook_decider::Model;
use daybook_event_store::StoreError;
use daybook_event_store::admin::IndexEntry;
use daybook_table::AggregateKey;
use futures_util::future::{join_all, try_join_all};
use jiff::Timestamp;
use maud::{Markup, html};
use serde::Deserialize;
use ulid::Ulid;

use super::example;
use crate::console::Console;
use crate::failure::Failure;
use crate::markup::fields;
use crate::markup::frame::{Frame, Page};
use crate::markup::time;
use crate::paths;

/// Aggregates on a page.
const PAGE: usize = 50;

/// The number up to which aggregates are counted: each read of a page of the index costs what the events cost that it
/// passes.
const MAX_COUNT: usize = 1_000;

/// The time for which new aggregates are counted.
const RECENT_MS: u64 = 60 * 60 * 1_000;

#[derive(Deserialize)]
pub(crate) struct AggregatesQuery {
    /// Only this type.
    #[serde(rename = "type")]
    of_type: Option<String>,
    /// Only aggregates that were created before this event.
    before: Option<String>,
}

/// A type with its counts.
struct TypeCounts<'a> {
    model: &'a dyn Model,
    aggregates: Result<Count, StoreError>,
    recent: Result<Count, StoreError>,
}

/// A number that is only known up to a maximum.
struct Count {
    counted: usize,
    is_more: bool,
}

impl Count {
    fn text(&self) -> String {
        format!("{}{}", self.counted, if self.is_more { "+" } else { "" })
    }
}

/// Shows the types with their counts, and the latest aggregates of all types or of one.
pub(crate) async fn page(
    State(console): State<Arc<Console>>,
    Query(AggregatesQuery { of_type, before }): Query<AggregatesQuery>,
) -> Result<Page, Failure> {
    let before = before.as_deref().map(Ulid::from_string).transpose();
    let before = before.map_err(|error| Failure::invalid(format!("the position in the list: {error}")))?;
    let models: Vec<_> = match &of_type {
        None => console.registry.iter().collect(),
        Some(name) => {
            vec![console.registry.get(name).ok_or_else(|| Failure::missing(format!("There is no type {name}.")))?]
        }
    };
    // On AWS, counting would read the index for each visitor of the page.
    let counts = match console.kind.is_local() {
        true => join_all(console.registry.iter().map(|model| counts(&console, model))).await,
        false => Vec::new(),
    };
    let (entries, more) = latest(&console, &models, before).await?;
    let keys = entries.iter().map(|entry| entry.aggregate.clone()).collect::<BTreeSet<_>>();
    let versions = if keys.is_empty() { BTreeMap::new() } else { console.store.admin().versions(&keys).await? };
    let next = entries.last().filter(|_| more).map(|entry| entry.event_id);
    let is_empty = entries.is_empty() && before.is_none();
    let title = of_type.as_deref().unwrap_or("Aggregates");
    let content = html! {
        h1 { @match &of_type { Some(name) => { a href=(paths::page("")) { "Aggregates" } " / " (name) }, None => "Aggregates" } }
        @if is_empty && of_type.is_none() { (first_visit(&console)) }
        @if of_type.is_none() {
            @if console.kind.is_local() { (types(&counts)) } @else { (type_links(&console)) }
        }
        @if !is_empty || of_type.is_some() { (list(&console, &entries, &versions, of_type.as_deref())) }
        @if let Some(next) = next {
            p { a rel="next" href=(older(of_type.as_deref(), next)) { "Older aggregates" } }
        }
    };
    Ok(Frame::new(title).below("Aggregates").with(content))
}

async fn counts<'a>(console: &Console, model: &'a dyn Model) -> TypeCounts<'a> {
    let now = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or_default();
    let recent = Ulid::from_parts(now.saturating_sub(RECENT_MS), 0);
    let (aggregates, recent) = tokio::join!(count(console, model, Ulid::nil()), count(console, model, recent));
    TypeCounts { model, aggregates, recent }
}

async fn count(console: &Console, model: &dyn Model, first: Ulid) -> Result<Count, StoreError> {
    let partitions = console.partitions(model);
    let admin = console.store.admin();
    let pages = partitions.iter().map(|partition| admin.index_page(partition, first, Ulid::max(), MAX_COUNT));
    let pages = try_join_all(pages).await?;
    let counted = pages.iter().map(|page| page.items.len()).sum();
    Ok(Count { counted, is_more: pages.iter().any(|page| page.more) })
}

/// The latest aggregates of the types, the latest first, and whether there are more.
async fn latest(
    console: &Console,
    models: &[&dyn Model],
    before: Option<Ulid>,
) -> Result<(Vec<IndexEntry>, bool), StoreError> {
    let partitions: Vec<_> = models.iter().flat_map(|model| console.partitions(*model)).collect();
    let admin = console.store.admin();
    let pages = try_join_all(partitions.iter().map(|partition| admin.latest(partition, before, PAGE))).await?;
    let more = pages.iter().any(|page| page.more);
    let mut entries: Vec<_> = pages.into_iter().flat_map(|page| page.items).collect();
    entries.sort_by_key(|entry| std::cmp::Reverse(entry.event_id));
    let more = more || entries.len() > PAGE;
    entries.truncate(PAGE);
    Ok((entries, more))
}

fn older(of_type: Option<&str>, before: Ulid) -> String {
    let before = before.to_string();
    let of_type = of_type.map(|name| ("type", name));
    let query: Vec<_> = of_type.into_iter().chain([("before", before.as_str())]).collect();
    paths::with_query(paths::CONSOLE, &query)
}

/// What to do first, while there is no aggregate.
fn first_visit(console: &Console) -> Markup {
    html! {
        section.notice.start {
            h2 { "Nothing has happened yet" }
            p {
                "This page lists the aggregates of the stack as soon as there are some. Send a command to the API"
                @if console.kind.is_local() { ", or use the form of a type below" } "."
            }
            @if console.kind.is_local() && example::fits(&console.registry) {
                form method="post" action=(paths::page("/example")) {
                    (fields::token(&console.form_token))
                    button.primary { "Run the README's example" }
                    span.hint { " Opens the account 123, names its owner, and records two transactions." }
                }
            }
        }
    }
}

fn types(counts: &[TypeCounts<'_>]) -> Markup {
    html! {
        section {
            h2 { "Types" }
            div.scroll tabindex="0" { table {
                thead { tr {
                    th { "Type" } th.number { "Aggregates" } th.number { "New in the last hour" } th.names { "Events" } th { span.hidden { "Actions" } }
                } }
                tbody {
                    @for TypeCounts { model, aggregates, recent } in counts {
                        tr data-row {
                            td { a href=(paths::with_query(paths::CONSOLE, &[("type", model.type_name())])) { (model.type_name()) } }
                            td.number { (count_cell(aggregates)) }
                            td.number { (count_cell(recent)) }
                            td.names { (model.events().iter().map(|event| event.name).collect::<Vec<_>>().join(", ")) }
                            td { a.quiet href=(paths::command(model.type_name(), &[])) { "Send a command" } }
                        }
                    }
                }
            } }
        }
    }
}

/// The types without counts.
fn type_links(console: &Console) -> Markup {
    html! {
        nav.tabs aria-label="Types" {
            @for model in console.registry.iter() {
                a href=(paths::with_query(paths::CONSOLE, &[("type", model.type_name())])) { (model.type_name()) }
            }
        }
    }
}

fn count_cell(count: &Result<Count, StoreError>) -> Markup {
    match count {
        Ok(count) => html! { (count.text()) },
        Err(error) => html! { span.bad title=(crate::failure::with_causes(error)) { "?" } },
    }
}

fn list(
    console: &Console,
    entries: &[IndexEntry],
    versions: &BTreeMap<AggregateKey, u64>,
    of_type: Option<&str>,
) -> Markup {
    let of_type = of_type.filter(|_| console.kind.is_local());
    html! {
        section {
            h2 { "Latest aggregates" }
            @if entries.is_empty() {
                p.empty {
                    "There are none. "
                    @if let Some(name) = of_type { a href=(paths::command(name, &[])) { "Create one with a command" } "." }
                }
            } @else {
                div.scroll tabindex="0" { table {
                    thead { tr { th { "Aggregate" } th.number { "Version" } th { "Created" } } }
                    tbody {
                        @for entry in entries {
                            tr data-row {
                                td { a href=(paths::aggregate(&entry.aggregate)) {
                                    span.type { (entry.aggregate.aggregate_type) "/" } (entry.aggregate.id)
                                } }
                                td.number { @match versions.get(&entry.aggregate) { Some(version) => (version), None => "?" } }
                                td { (created(entry.event_id)) }
                            }
                        }
                    }
                } }
            }
        }
    }
}

fn created(event_id: Ulid) -> Markup {
    time::relative_ms(i64::try_from(event_id.timestamp_ms()).unwrap_or(i64::MAX))
}
