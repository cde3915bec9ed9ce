//! *Copy as a test*: what a page shows, as Rust source.

use std::sync::Arc;

use axum::extract::State;
use daybook_admin::AdminCalls;
use daybook_decider::{Model, RecordedEvent};
use daybook_event_store::{LoadOptions, LoadPolicy};
use daybook_table::AggregateKey;
use maud::{Markup, html};

use super::aggregate::aggregate;
use super::message_fates::published;
use crate::console::Console;
use crate::failure::Failure;
use crate::markup::frame::{Frame, Page};
use crate::paths;
use crate::query::{PagePath, PageQuery, VersionNumber, VersionQuery};
use crate::test_source::{Expectation, TestSource};

/// Maximum events that a test is given.
const MAX_GIVEN: usize = 200;

/// A command with its result, as the API returned it.
pub(crate) struct Decided<'a> {
    pub(crate) command: &'a str,
    /// The command and its data, JSON.
    pub(crate) json: &'a str,
    /// The version before.
    pub(crate) before: u64,
    /// The name of the rejection.
    pub(crate) rejection: Option<&'a str>,
}

/// Shows the test of the state at a version.
pub(crate) async fn page(
    State(console): State<Arc<Console>>,
    PagePath(path): PagePath<(String, String)>,
    PageQuery(VersionQuery { version: VersionNumber(version) }): PageQuery<VersionQuery>,
) -> Result<Page, Failure> {
    let (model, key) = aggregate(&console, path)?;
    let content = html! {
        h1 { "Test of the state at version " (version) }
        p.facts { a href=(paths::version(&key, version)) { (key) " at version " (version) } }
        @match of_state(&console, model, &key, version).await? {
            Some(source) => (block(&source)),
            None => (too_many()),
        }
    };
    Ok(Frame::new(&format!("Test of {key}")).below("Aggregates").with(content))
}

/// The source, with what to do with it.
pub(crate) fn block(source: &str) -> Markup {
    html! {
        p.hint {
            "Save it as a file in the folder " code { "tests" } " of the crate of your aggregates, and run " code { "cargo test" } "."
        }
        div.copy { pre.source tabindex="0" role="group" aria-label="Rust source" { (source) } }
    }
}

/// What stands in place of a test with too many events.
pub(crate) fn too_many() -> Markup {
    html! { p.empty { "A test of more than " (MAX_GIVEN) " events would be unreadable. Choose an aggregate with fewer." } }
}

async fn of_state(
    console: &Console,
    model: &dyn Model,
    key: &AggregateKey,
    version: u64,
) -> Result<Option<String>, Failure> {
    let Some(events) = events(console, key, version).await? else { return Ok(None) };
    let options = LoadOptions { policy: LoadPolicy::Incremental, at_least: 0, at: Some(version) };
    let state = console.store.load_with(model, key, options).await?.state;
    let source = TestSource {
        subject: model.rust_type(),
        name: &format!("state of {key} at version {version}"),
        id: &key.id,
        given: &readable(model, &events)?,
        expectation: Expectation::State(state.text()),
    };
    Ok(Some(source.text()))
}

/// The test of a decision; `None` if it would have too many events.
pub(crate) async fn of_decision(
    console: &Console,
    model: &dyn Model,
    key: &AggregateKey,
    decided: &Decided<'_>,
) -> Result<Option<String>, Failure> {
    let Some(mut given) = events(console, key, u64::MAX).await? else { return Ok(None) };
    let new = given.split_off(given.partition_point(|event| event.seq_num <= decided.before));
    let outbox = console.store.admin().messages_of(&published(key, given.last(), &new)).await?;
    let messages: Vec<_> = outbox.into_iter().flat_map(|messages| messages.rows).map(|row| row.message_type).collect();
    let at = new.first().map(|event| daybook_decider::record::timestamp(event.occurred_at));
    let source = TestSource {
        subject: model.rust_type(),
        name: &format!("{} on {key}", decided.command),
        id: &key.id,
        given: &readable(model, &given)?,
        expectation: Expectation::Decision {
            command: decided.json,
            rejection: decided.rejection,
            events: &readable(model, &new)?,
            messages: &messages,
            at: at.as_deref(),
        },
    };
    Ok(Some(source.text()))
}

/// The events up to a version; `None` if there are too many.
async fn events(console: &Console, key: &AggregateKey, version: u64) -> Result<Option<Vec<RecordedEvent>>, Failure> {
    let page = console.store.events(key, 0, MAX_GIVEN + 1).await?;
    let mut events = page.items;
    events.retain(|event| event.seq_num <= version);
    Ok((events.len() <= MAX_GIVEN).then_some(events))
}

/// The events as JSON that the aggregate's own type reads.
fn readable(model: &dyn Model, events: &[RecordedEvent]) -> Result<Vec<String>, Failure> {
    let mut readable = Vec::new();
    for event in events {
        let read = model.read(event).map_err(|error| Failure::invalid(error.to_string()))?;
        readable.extend(read.iter().map(|(name, data)| format!("{{\"type\":{name:?},\"data\":{}}}", data.text())));
    }
    Ok(readable)
}
