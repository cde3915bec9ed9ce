//! *Aggregates*: the types, the latest aggregates, and the search for one by its id.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use daybook_admin::{AdminCalls, IndexEntry};
use daybook_decider::{Model, personal};
use daybook_event_store::StoreError;
use daybook_table::AggregateKey;
use daybook_table::keys::is_id;
use futures_util::future::try_join_all;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use maud::{Markup, html};
use serde::Deserialize;
use ulid::Ulid;

use crate::console::{CONCURRENCY, Console};
use crate::frame::{Failure, Page, table};
use crate::pages::command;
use crate::pages::latest_events::{IndexPage, latest_events, pages, position};
use crate::request::{self, PageQuery};
use crate::{paths, time};

const PAGE: usize = 50;

/// The number up to which aggregates are counted: each read of a page of the index costs what the events cost that it
/// passes.
const MAX_COUNT: usize = 1_000;

/// The number of aggregates of a type whose states are searched for a text.
const SEARCHED: usize = 200;

/// The time for which new aggregates are counted.
const RECENT_MS: u64 = 60 * 60 * 1_000;

#[derive(Deserialize)]
pub(crate) struct AggregatesQuery {
    #[serde(rename = "type")]
    of_type: Option<String>,
    /// Only aggregates that were created before this event.
    before: Option<String>,
    /// Of one type, only those of which the state contains this text.
    #[serde(default)]
    containing: String,
}

/// A type with the first events of its latest aggregates.
struct TypePages<'a> {
    model: &'a dyn Model,
    pages: Vec<IndexPage>,
}

/// The number of aggregates of a type, with a plus if there may be more.
pub(crate) async fn count(console: &Console, model: &dyn Model) -> Result<String, StoreError> {
    Ok(type_pages(console, model, None, MAX_COUNT).await?.count_since(Ulid::nil()))
}

impl TypePages<'_> {
    /// The number of aggregates that were created after this time, with a plus if there may be more.
    fn count_since(&self, first: Ulid) -> String {
        let is_counted = |entry: &&IndexEntry| self.has(entry) && entry.event_id >= first;
        let counted = self.pages.iter().flat_map(|page| &page.items).filter(is_counted).count();
        let is_more = self.pages.iter().any(|page| page.more && page.cursor >= first);
        format!("{counted}{}", if is_more { "+" } else { "" })
    }

    fn has(&self, entry: &IndexEntry) -> bool {
        entry.aggregate.aggregate_type == self.model.type_name()
    }
}

pub(crate) async fn page(
    State(console): State<Arc<Console>>,
    PageQuery(AggregatesQuery { of_type, before, containing }): PageQuery<AggregatesQuery>,
) -> Result<Page, Failure> {
    let before = before.as_deref().map(position).transpose()?;
    let containing = of_type.as_ref().map_or("", |_| containing.trim());
    let models: Vec<_> = match &of_type {
        None => console.registry.iter().collect(),
        Some(name) => vec![request::model(&console, name)?],
    };
    let is_first_page = before.is_none();
    // On AWS, counting would read the index for each visitor of the page.
    let shown = if containing.is_empty() { PAGE } else { SEARCHED };
    let limit = if console.is_local() && of_type.is_none() && is_first_page { MAX_COUNT } else { shown };
    let types = try_join_all(models.into_iter().map(|model| type_pages(&console, model, before, limit))).await?;
    let is_wanted = |entry: &IndexEntry| types.iter().any(|of_type| of_type.has(entry));
    let mut latest = latest_events(types.iter().flat_map(|of_type| &of_type.pages), shown, is_wanted);
    let searched = latest.events.len();
    if let [TypePages { model, .. }] = types.as_slice()
        && !containing.is_empty()
    {
        latest.events = with_state_containing(&console, *model, latest.events, containing).await?;
    }
    let keys = latest.events.iter().map(|entry| entry.aggregate.clone()).collect::<BTreeSet<_>>();
    let versions = if keys.is_empty() { BTreeMap::new() } else { console.store.admin().versions(&keys).await? };
    let is_empty = searched == 0 && is_first_page;
    let creatable = of_type.as_deref().filter(|_| console.is_local() && containing.is_empty());
    let title = of_type.as_deref().unwrap_or("Aggregates");
    let content = html! {
        h1 { @match &of_type { Some(name) => { a href=(paths::page("")) { "Aggregates" } " / " (name) }, None => "Aggregates" } }
        @if is_empty && of_type.is_none() { (first_visit(&console)) }
        @if of_type.is_none() && is_first_page { (types_table(&console, &types)) }
        @if let Some(name) = of_type.as_deref().filter(|_| !is_empty) { (state_filter(name, containing, searched)) }
        @if !is_empty || of_type.is_some() { (list(&console, &latest.events, &versions, creatable)) }
        @if let Some(next) = latest.next {
            p { a rel="next" href=(older(of_type.as_deref(), containing, next)) { "Older aggregates" } }
        }
    };
    Ok(Page::new(title, "Aggregates", content))
}

async fn type_pages<'a>(
    console: &Console,
    model: &'a dyn Model,
    before: Option<Ulid>,
    limit: usize,
) -> Result<TypePages<'a>, StoreError> {
    Ok(TypePages { model, pages: pages(console, &console.partitions(model), before, limit).await? })
}

fn older(of_type: Option<&str>, containing: &str, before: Ulid) -> String {
    let before = before.to_string();
    let all = [("type", of_type.unwrap_or_default()), ("containing", containing), ("before", before.as_str())];
    let query: Vec<_> = all.into_iter().filter(|(_, value)| !value.is_empty()).collect();
    paths::with_query(paths::CONSOLE, &query)
}

async fn with_state_containing(
    console: &Console,
    model: &dyn Model,
    entries: Vec<IndexEntry>,
    text: &str,
) -> Result<Vec<IndexEntry>, StoreError> {
    let loads = entries.into_iter().map(async |entry| {
        let state = match console.store.load(model, &entry.aggregate).await {
            Ok(loaded) => personal::shown(loaded.state.text()).into_owned(),
            // A page of its own shows why it has no state.
            Err(StoreError::Corrupt { .. } | StoreError::Newer { .. } | StoreError::Panicked { .. }) => String::new(),
            Err(error) => return Err(error),
        };
        Ok(Some(entry).filter(|_| state.contains(text)))
    });
    stream::iter(loads).buffered(CONCURRENCY).try_filter_map(async |found| Ok(found)).try_collect().await
}

fn state_filter(of_type: &str, containing: &str, searched: usize) -> Markup {
    html! {
        form.filters action=(paths::CONSOLE) {
            input type="hidden" name="type" value=(of_type);
            label { "State contains" input name="containing" value=(containing) placeholder="\"customerId\":\"alice\"" spellcheck="false" autocomplete="off"; }
            button { "Filter" }
            @if !containing.is_empty() { a href=(paths::with_query(paths::CONSOLE, &[("type", of_type)])) { "Clear" } }
        }
        @if !containing.is_empty() {
            p.hint { (searched) " aggregates were loaded and searched. For a frequent question, " strong { "a read model" } " answers with one read." }
        }
    }
}

fn first_visit(console: &Console) -> Markup {
    html! {
        section.notice.start {
            h2 { "Nothing has happened yet" }
            p {
                "This page lists the aggregates of the stack as soon as there are some. Send a command to the API"
                @if console.is_local() { ", or use the form of a type below" } "."
            }
            @if console.is_local() && let Some(model) = command::first_type(&console.registry) {
                form method="post" action=(paths::page("/samples")) {
                    (request::token(&console.form_token))
                    button.primary { "Try the commands of " (model.type_name()) }
                    span.hint { " Sends a sample of each to a new aggregate." }
                }
            }
        }
    }
}

/// The types, on the local stack with counts.
fn types_table(console: &Console, types: &[TypePages<'_>]) -> Markup {
    let now = u64::try_from(console.store.now().as_millisecond()).unwrap_or_default();
    let recent = Ulid::from_parts(now.saturating_sub(RECENT_MS), 0);
    html! {
        section {
            h2 { "Types" }
            div.scroll tabindex="0" { table {
                thead { tr {
                    th { "Type" }
                    @if console.is_local() { th.number { "Aggregates" } th.number { "New in the last hour" } }
                    th.names { "Events" }
                    @if console.is_local() { th { span.hidden { "Actions" } } }
                } }
                tbody {
                    @for of_type in types {
                        @let model = of_type.model;
                        tr data-row {
                            td { a href=(paths::with_query(paths::CONSOLE, &[("type", model.type_name())])) { (model.type_name()) } }
                            @if console.is_local() {
                                td.number { (of_type.count_since(Ulid::nil())) } td.number { (of_type.count_since(recent)) }
                            }
                            td.names { (model.events().iter().map(|event| event.name).collect::<Vec<_>>().join(", ")) }
                            @if console.is_local() { td { a.quiet href=(paths::command(model.type_name(), &[])) { "Send a command" } } }
                        }
                    }
                }
            } }
        }
    }
}

fn list(
    console: &Console,
    entries: &[IndexEntry],
    versions: &BTreeMap<AggregateKey, u64>,
    creatable: Option<&str>,
) -> Markup {
    html! {
        section {
            h2 { "Latest aggregates" }
            @if entries.is_empty() {
                p.empty {
                    "There are none. "
                    @if let Some(name) = creatable { a href=(paths::command(name, &[])) { "Create one with a command" } "." }
                }
            } @else {
                (table(&["Aggregate", "#Version", "Created"], &html! {
                    @for entry in entries {
                        tr data-row {
                            td { a href=(paths::aggregate(&entry.aggregate)) {
                                span.type { (entry.aggregate.aggregate_type) "/" } (entry.aggregate.id)
                            } }
                            td.number { @match versions.get(&entry.aggregate) { Some(version) => (version), None => "?" } }
                            td { (time::relative_ms(entry.event_id.timestamp_ms(), console.store.now())) }
                        }
                    }
                }))
            }
        }
    }
}

#[derive(Deserialize)]
pub(crate) struct SearchQuery {
    #[serde(default)]
    q: String,
}

/// Shows the aggregate with this id, or a list if several types have one. Other ids are shown as what they are: an id
/// may also be that of a business transaction or a message.
pub(crate) async fn search(
    State(console): State<Arc<Console>>,
    PageQuery(SearchQuery { q }): PageQuery<SearchQuery>,
) -> Result<Response, Failure> {
    let wanted = q.trim();
    let (of_type, id) = wanted.split_once('/').map_or((None, wanted), |(of_type, id)| (Some(of_type), id));
    let models = console.registry.iter().map(|model| model.type_name());
    let keys = models.filter(|name| of_type.is_none_or(|of_type| of_type == *name));
    let keys: BTreeSet<_> = keys.filter(|_| is_id(id)).map(|name| AggregateKey::new(name, id)).collect();
    let found = if keys.is_empty() { Default::default() } else { console.store.admin().versions(&keys).await? };
    let found: Vec<_> = found.into_keys().collect();
    if let [only] = found.as_slice() {
        return Ok(Redirect::to(&paths::aggregate(only)).into_response());
    }
    let content = html! {
        h1 { "Search" }
        @if wanted.is_empty() {
            p.empty { "Enter the id of an aggregate, such as " code { "123" } " or " code { "account/123" } "." }
        } @else if found.is_empty() {
            p.empty { "No aggregate has the id " code { (wanted) } "." }
            @if console.is_local() {
                p.empty { "It could be something else:" }
                ul {
                    li { a href=(paths::correlation(wanted)) { "a correlation id" } }
                    li { a href=(paths::with_query(&paths::page("/bus"), &[("containing", wanted)])) { "a text in the messages on the bus" } }
                }
            }
        } @else {
            p { "Several types have an aggregate with this id:" }
            ul { @for key in &found { li { a href=(paths::aggregate(key)) { (key) } } } }
        }
    };
    Ok(Page { search: wanted.to_owned(), ..Page::new("Search", "", content) }.into_response())
}
