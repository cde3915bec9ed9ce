//! *An aggregate*: its timeline, and its state at a version.

use std::sync::Arc;

use axum::extract::State;
use daybook_admin::{AdminCalls, AggregateProgress};
use daybook_decider::{Model, RecordedEvent};
use daybook_table::AggregateKey;
use daybook_table::keys::is_id;
use maud::{Markup, html};
use serde::Deserialize;

use super::deadlines;
use super::timeline::{Fate, Timeline, event_details, fates_of_events};
use super::version::{ShownVersion, StateAt, changes_markup, state_at};
use crate::console::Console;
use crate::frame::{Failure, Page, copy_button};
use crate::request::{PagePath, PageQuery, model};
use crate::{json, paths};

pub(crate) const PAGE: u64 = 30;

#[derive(Deserialize)]
pub(crate) struct AggregateQuery {
    /// The version to show; the latest by default.
    version: Option<u64>,
    /// The last event of the timeline; the shown version by default, or the latest if both are on one page.
    until: Option<u64>,
    /// Also fold a state for which more events must be read than a page usually reads.
    #[serde(default)]
    fold: bool,
}

pub(crate) fn aggregate(
    console: &Console,
    (of_type, id): (String, String),
) -> Result<(&dyn Model, AggregateKey), Failure> {
    let model = model(console, &of_type)?;
    if !is_id(&id) {
        return Err(Failure::missing(format!("{id:?} cannot be the id of an aggregate.")));
    }
    Ok((model, AggregateKey::new(of_type, id)))
}

struct Shown<'a> {
    model: &'a dyn Model,
    key: AggregateKey,
    progress: AggregateProgress,
    version: ShownVersion,
    /// The number of the last event of the timeline.
    until: u64,
}

/// Shows the aggregate at a version. It reads a page of events with their messages, and one or two states.
pub(crate) async fn page(
    State(console): State<Arc<Console>>,
    PagePath(path): PagePath<(String, String)>,
    PageQuery(query): PageQuery<AggregateQuery>,
) -> Result<Page, Failure> {
    let (model, key) = aggregate(&console, path)?;
    let progress = console.store.admin().progress(&key).await?;
    if progress.version == 0 {
        return Ok(missing(&console, model, &key));
    }
    let current = progress.version;
    let shown = query.version.unwrap_or(current);
    if !(1..=current).contains(&shown) {
        return Err(Failure::missing(format!("{key} has no version {shown}: its versions are 1 to {current}.")));
    }
    let until_shown = if current - shown < PAGE { current } else { shown };
    let until = query.until.unwrap_or(until_shown).clamp(1, current);
    let from = until.saturating_sub(PAGE);
    // One event more shows how many messages were before the first one.
    let after = from.saturating_sub(1);
    let count = usize::try_from(until - after).unwrap_or(usize::MAX);
    let events = console.store.events(&key, after, count).await?;
    let usable = progress.snapshot.filter(|snapshot| snapshot.state_version == model.state_version());
    let snapshot = usable.map_or(0, |found| found.version);
    let version = ShownVersion { shown, current, snapshot, at_any_cost: query.fold };
    let (before, of_page): (Vec<_>, Vec<_>) = events.items.into_iter().partition(|event| event.seq_num <= from);
    let of_page: Vec<_> = of_page.into_iter().filter(|event| event.seq_num <= until).collect();
    let (fates, state) = tokio::try_join!(
        fates_of_events(&console, &key, before.last(), &of_page),
        state_at(&console, model, &key, version)
    )?;
    let shown = Shown { model, key, progress, version, until };
    let timeline = Timeline {
        key: &shown.key,
        events: &of_page,
        fates: &fates,
        snapshot: progress.snapshot.map(|found| found.version),
        shown: version.shown,
        now: console.store.now(),
    };
    // The script reads the page again until messages that were just published have reached the bus.
    let is_waiting = fates.values().flat_map(|fates| &fates.messages).any(|(fate, _)| matches!(fate, Fate::Waiting));
    let content = html! {
        (heading(&console, &shown))
        div.split {
            section.timeline aria-labelledby="timeline" data-refresh[is_waiting] {
                h2 #timeline { "Timeline" }
                @for row in &events.unreadable {
                    div.notice.bad role="alert" { strong { "A row cannot be read: " code { (row.sk) } } p { (row.reason) } }
                }
                (timeline.markup())
                (pages(&shown, from))
            }
            aside.panel aria-labelledby="state" {
                (slider(&shown))
                (state_panel(&console, &shown, &state, of_page.iter().find(|event| event.seq_num == version.shown)))
            }
        }
    };
    Ok(Page::new(shown.key.to_string(), "Aggregates", content))
}

fn missing(console: &Console, model: &dyn Model, key: &AggregateKey) -> Page {
    let create = paths::command(model.type_name(), &[("id", &key.id), ("command", model.commands().create)]);
    let content = html! {
        h1 { span.type { (key.aggregate_type) "/" } (key.id) }
        p.empty {
            "There is no such aggregate. "
            @if console.is_local() { a href=(create) { "Create it with " (model.commands().create) } "." }
        }
    };
    Page::new(key.to_string(), "Aggregates", content)
}

fn heading(console: &Console, shown: &Shown<'_>) -> Markup {
    let Shown { model, key, progress, version, .. } = shown;
    html! {
        div.heading {
            h1 {
                a href=(paths::with_query(paths::CONSOLE, &[("type", &key.aggregate_type)])) { (key.aggregate_type) }
                "/" (key.id) (copy_button(&key.id))
            }
            p.facts {
                "version " strong { (version.current) }
                @if let Some(snapshot) = progress.snapshot {
                    " · snapshot of version " (snapshot.version)
                    @if snapshot.state_version != model.state_version() {
                        span.warn title="Loads ignore it: the code has another STATE_VERSION." { " of state version " (snapshot.state_version) }
                    }
                } @else { " · no snapshot" }
                @if model.full_history() { " · loaded with its whole history" }
            }
            p.actions {
                @if console.is_local() {
                    a.button href=(paths::command(model.type_name(), &[("id", &key.id)])) { "Send a command" }
                }
                @if !model.sources().is_empty() { a.button href={ (paths::aggregate(key)) "/process" } { "Beside its sources" } }
                a.button href={ (paths::aggregate(key)) "/test?version=" (version.shown) } { "Copy as a test" }
                a.button href={ (paths::aggregate(key)) "/events/" (version.shown) } { "Raw rows" }
            }
        }
    }
}

fn pages(shown: &Shown<'_>, from: u64) -> Markup {
    let Shown { key, version, until, .. } = shown;
    let link = |until: u64| format!("{}&until={until}", paths::version(key, version.shown));
    html! {
        nav.pages aria-label="Pages of the timeline" {
            @if *until < version.current {
                a href=(link((until + PAGE).min(version.current))) { "Newer events" }
            }
            @if from > 0 { a href=(link(from)) { "Older events" } }
            @if *until < version.current { a href=(paths::aggregate(key)) { "Latest" } }
            @if version.current > PAGE {
                form action=(paths::aggregate(key)) {
                    label for="go" { "Version" }
                    input #go type="number" name="version" min="1" max=(version.current) value=(version.shown) required;
                    button { "Go" }
                }
            }
        }
    }
}

fn slider(shown: &Shown<'_>) -> Markup {
    let Shown { key, version: ShownVersion { shown, current, .. }, .. } = shown;
    html! {
        div.slider {
            h2 #state { "Version " (shown) @if shown == current { span.hint { " latest" } } }
            form.versions action=(paths::aggregate(key)) data-slider {
                @if *shown > 1 {
                    a.button rel="prev" href=(paths::version(key, shown - 1)) aria-label="The version before" { "←" }
                } @else { span.button.off aria-hidden="true" { "←" } }
                label.hidden for="version" { "Version" }
                input #version type="range" name="version" min="1" max=(current) value=(shown) disabled[*current == 1];
                output for="version" { (shown) " of " (current) }
                @if shown < current {
                    a.button rel="next" href=(paths::version(key, shown + 1)) aria-label="The next version" { "→" }
                } @else { span.button.off aria-hidden="true" { "→" } }
                button.noscript { "Show" }
            }
        }
    }
}

fn state_panel(console: &Console, shown: &Shown<'_>, state: &StateAt, event: Option<&RecordedEvent>) -> Markup {
    let Shown { key, version, .. } = shown;
    let details = html! { @if let Some(event) = event { (event_details(console, event)) } };
    html! {
        @match state {
            StateAt::Known { state, claims, deadlines, changes, is_deleted } => {
                @if *is_deleted { p.notice.warn { "The aggregate is deleted at this version." } }
                (details)
                h3 { "Changed by this event" }
                @match changes {
                    Some(changes) => (changes_markup(changes)),
                    None => p.hint {
                        "The state before is not near a snapshot. "
                        a href={ (paths::version(key, version.shown)) "&fold=true" } { "Fold it" }
                    },
                }
                @if !claims.is_empty() {
                    h3 { "Claims" }
                    ul { @for claim in claims { li { code { (claim) } } } }
                }
                (deadlines::of_aggregate(deadlines, console.store.now()))
                h3 { "State" }
                (json::block(state))
            }
            StateAt::Unreadable { error, event: failed } => {
                div.notice.bad role="alert" {
                    strong { "The state of this version cannot be computed" }
                    p { (error) }
                    @if let Some(failed) = failed {
                        p {
                            a href={ (paths::aggregate(key)) "/events/" (failed) } { "The rows of event " (failed) }
                            @if *failed > 1 { " · " a href=(paths::version(key, failed - 1)) { "The state before it" } }
                        }
                    }
                }
                (details)
            }
            StateAt::Expensive { events } => {
                (details)
                div.notice {
                    p { "No snapshot is near this version: " (events) " events would be read and folded to show the state." }
                    p { a.button href={ (paths::version(key, version.shown)) "&fold=true" } { "Fold " (events) " events" } }
                }
            }
        }
    }
}
