//! *Copy as a test*: what a page shows, as Rust source.

use std::sync::Arc;

use axum::extract::State;
use daybook_admin::AdminCalls;
use daybook_decider::{Model, RecordedEvent, personal};
use daybook_event_store::{LoadOptions, LoadPolicy};
use daybook_table::AggregateKey;
use heck::ToSnakeCase;
use maud::{Markup, html};
use serde::Deserialize;

use crate::console::Console;
use crate::frame::{Failure, Page};
use crate::pages::aggregate::aggregate;
use crate::pages::timeline::published;
use crate::paths;
use crate::request::{PagePath, PageQuery};

const MAX_GIVEN: usize = 200;

/// A command with its result, as the API returned it.
pub(crate) struct Decided<'a> {
    pub(crate) command: &'a str,
    /// The command and its data, JSON.
    pub(crate) json: &'a str,
    /// The version before.
    pub(crate) before: u64,
    pub(crate) rejection: Option<&'a str>,
}

#[derive(Deserialize)]
pub(crate) struct TestQuery {
    version: u64,
}

pub(crate) async fn page(
    State(console): State<Arc<Console>>,
    PagePath(path): PagePath<(String, String)>,
    PageQuery(TestQuery { version }): PageQuery<TestQuery>,
) -> Result<Page, Failure> {
    let (model, key) = aggregate(&console, path)?;
    let content = html! {
        h1 { "Test of the state at version " (version) }
        p.facts { a href=(paths::version(&key, version)) { (key) " at version " (version) } }
        (block(of_state(&console, model, &key, version).await?.as_deref()))
    };
    Ok(Page::new(format!("Test of {key}"), "Aggregates", content))
}

/// The source, with what to do with it; without one, the test would have too many events.
pub(crate) fn block(source: Option<&str>) -> Markup {
    html! {
        @if let Some(source) = source {
            p.hint {
                "Save it as a file in the folder " code { "tests" } " of the crate of your aggregates, and run " code { "cargo test" } "."
            }
            @if personal::contains(source) {
                p.hint { "Replace its personal values before you save it: nothing forgets them there." }
            }
            div.copy { pre.source tabindex="0" role="group" aria-label="Rust source" { (source) } }
        } @else {
            p.empty { "A test of more than " (MAX_GIVEN) " events would be unreadable. Choose an aggregate with fewer." }
        }
    }
}

async fn of_state(
    console: &Console,
    model: &dyn Model,
    key: &AggregateKey,
    version: u64,
) -> Result<Option<String>, Failure> {
    let Some(events) = events(console, key, version).await? else { return Ok(None) };
    let options = LoadOptions { policy: LoadPolicy::Incremental, at_least: 0, at: Some(version) };
    let loaded = console.store.load_with(model, key, options).await?;
    if loaded.version() != version {
        return Err(Failure::missing(format!("{key} has no version {version}.")));
    }
    let name = format!("state of {key} at version {version}").to_snake_case();
    let (given, state) = (list(&readable(model, &events)?, 1), raw(loaded.state.text()));
    let id = &key.id;
    let test = format!(
        "\n#[test]\nfn {name}() {{\n    let state = given::<Subject>({given}).with_id({id:?}).state();\n    let expected: \
         serde_json::Value = serde_json::from_str({state}).unwrap();\n    assert_eq!(serde_json::to_value(state).unwrap(), \
         expected);\n}}\n"
    );
    Ok(Some(beginning(model) + &test))
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
    let at = at.map(|at| format!("\n        .at({at:?})")).unwrap_or_default();
    let events = list(&readable(model, &new)?, 2);
    let then = match decided.rejection {
        Some(rejection) => format!("then_rejected({rejection:?}, {events})"),
        None => format!("then({events})"),
    };
    let name = format!("{} on {key}", decided.command).to_snake_case();
    let (given, command, id) = (list(&readable(model, &given)?, 1), raw(decided.json), &key.id);
    let test = format!(
        "\nfn command(json: &str) -> <Subject as Aggregate>::Command {{\n    serde_json::from_str(json).unwrap()\n}}\n\n\
         #[test]\nfn {name}() {{\n    given::<Subject>({given})\n        .with_id({id:?}){at}\n        .when(command({command}))\n        \
         .{then}\n        .announces({messages:?});\n}}\n"
    );
    Ok(Some(beginning(model) + &test))
}

/// The beginning of a file in the folder `tests` of the crate of the aggregates.
fn beginning(model: &dyn Model) -> String {
    format!(
        "use daybook::Aggregate;\nuse daybook::given::given;\n\ntype Subject = {};\n\n\
         fn event(json: &str) -> <Subject as Aggregate>::Event {{\n    serde_json::from_str(json).unwrap()\n}}\n",
        model.rust_type()
    )
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

fn list(events: &[String], depth: usize) -> String {
    let (inner, outer) = ("    ".repeat(depth + 1), "    ".repeat(depth));
    let lines: String = events.iter().map(|event| format!("\n{inner}event({}),", raw(event))).collect();
    if lines.is_empty() { "[]".to_owned() } else { format!("[{lines}\n{outer}]") }
}

/// A text as a raw string, with as many signs as it needs.
fn raw(text: &str) -> String {
    let signs = (1..).map(|count| "#".repeat(count)).find(|signs| !text.contains(&format!("\"{signs}")));
    let signs = signs.unwrap_or_default();
    format!("r{signs}\"{text}\"{signs}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_a_test_is_an_identifier() {
        assert_eq!("RecordTransaction on account/12-b".to_snake_case(), "record_transaction_on_account_12_b");
        assert_eq!("state of order/A.1~ at version 3".to_snake_case(), "state_of_order_a_1_at_version_3");
    }

    #[test]
    fn raw_text_ends_where_it_should() {
        assert_eq!(raw("a"), "r#\"a\"#");
        assert_eq!(raw("a\"#b\"##"), "r###\"a\"#b\"##\"###");
    }
}
