//! The state of an aggregate at a version, and what differs from the version before.

use std::error::Error;

use daybook_decider::{Claim, Model, UnreadableEvent, personal};
use daybook_event_store::{LoadOptions, LoadPolicy, StoreError};
use daybook_function_runtime::with_causes;
use daybook_table::AggregateKey;
use maud::{Markup, html};
use serde_json::Value;

use super::deadlines::{ShownDeadline, deadlines_of};
use crate::console::Console;
use crate::frame::Failure;
use crate::json;

/// Maximum events that a page folds without being asked.
const MAX_FOLD: u64 = 2_000;

pub(crate) enum StateAt {
    /// The state, JSON, its claims and deadlines, and the difference to the version before, if that was computed.
    Known {
        state: String,
        claims: Vec<Claim>,
        deadlines: Vec<ShownDeadline>,
        changes: Option<Vec<JsonChange>>,
        is_deleted: bool,
    },
    Unreadable {
        error: String,
        event: Option<u64>,
    },
    /// Many events would have to be folded.
    Expensive {
        events: u64,
    },
}

#[derive(Clone, Copy)]
pub(crate) struct ShownVersion {
    pub(crate) shown: u64,
    pub(crate) current: u64,
    /// The version of the latest snapshot that this code reads; 0 without one.
    pub(crate) snapshot: u64,
    /// Whether the number of events does not matter.
    pub(crate) at_any_cost: bool,
}

impl ShownVersion {
    /// The number of events that are folded for a version.
    fn fold_of(self, version: u64, full_history: bool) -> u64 {
        if full_history {
            return version;
        }
        version - if self.snapshot <= version { self.snapshot } else { 0 }
    }
}

pub(crate) async fn state_at(
    console: &Console,
    model: &dyn Model,
    key: &AggregateKey,
    version: ShownVersion,
) -> Result<StateAt, Failure> {
    let events = version.fold_of(version.shown, model.full_history());
    if events > MAX_FOLD && !version.at_any_cost {
        return Ok(StateAt::Expensive { events });
    }
    let at = |number: u64| LoadOptions { policy: LoadPolicy::Incremental, at_least: 0, at: Some(number) };
    let loaded = match console.store.load_with(model, key, at(version.shown)).await {
        Ok(loaded) => loaded,
        Err(error @ (StoreError::Corrupt { .. } | StoreError::Newer { .. } | StoreError::Panicked { .. })) => {
            return Ok(StateAt::Unreadable { event: unreadable_event(&error), error: with_causes(&error) });
        }
        Err(error) => return Err(error.into()),
    };
    let state = personal::shown(loaded.state.text()).into_owned();
    let before = version.shown - 1;
    let is_cheap = version.at_any_cost || version.fold_of(before, model.full_history()) <= MAX_FOLD;
    let changes = if is_cheap { changes_since(console, model, key, at(before), &state).await } else { None };
    let claims = model.claims(&loaded.folded).unwrap_or_default();
    let is_latest = version.shown == version.current;
    let deadlines = deadlines_of(console, model, key, &loaded.folded, is_latest).await?;
    Ok(StateAt::Known { state, claims, deadlines, changes, is_deleted: model.is_deleted(&loaded.folded) })
}

/// The changes since the state before; `None` if that cannot be folded.
async fn changes_since(
    console: &Console,
    model: &dyn Model,
    key: &AggregateKey,
    before: LoadOptions,
    state: &str,
) -> Option<Vec<JsonChange>> {
    let before = match before.at {
        Some(0) => Value::Object(Default::default()),
        _ => {
            let before = console.store.load_with(model, key, before).await.ok()?;
            serde_json::from_str(&personal::shown(before.state.text())).ok()?
        }
    };
    Some(changes(&before, &serde_json::from_str(state).ok()?))
}

fn unreadable_event(error: &StoreError) -> Option<u64> {
    std::iter::successors(error.source(), |&cause| cause.source())
        .find_map(|cause| cause.downcast_ref::<UnreadableEvent>())
        .map(|event| event.seq_num)
}

const MAX_CHANGES: usize = 200;

#[derive(Debug, PartialEq)]
pub(crate) struct JsonChange {
    /// The members and positions that lead to it, as in JavaScript: `items[0].quantity`.
    pub(crate) path: String,
    /// The value before; `None` if there was none.
    pub(crate) before: Option<String>,
    /// The value after; `None` if there is none.
    pub(crate) after: Option<String>,
}

pub(crate) fn changes(before: &Value, after: &Value) -> Vec<JsonChange> {
    let mut found = Vec::new();
    compare(String::new(), Some(before), Some(after), &mut found);
    found
}

fn compare(path: String, before: Option<&Value>, after: Option<&Value>, found: &mut Vec<JsonChange>) {
    if before == after || found.len() >= MAX_CHANGES {
        return;
    }
    match (before, after) {
        (Some(Value::Object(before)), Some(Value::Object(after))) => {
            let mut names: Vec<_> = before.keys().chain(after.keys()).collect();
            names.sort_unstable();
            names.dedup();
            for name in names {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                compare(path, before.get(name), after.get(name), found);
            }
        }
        (Some(Value::Array(before)), Some(Value::Array(after))) => {
            for index in 0..before.len().max(after.len()) {
                compare(format!("{path}[{index}]"), before.get(index), after.get(index), found);
            }
        }
        _ => found.push(JsonChange { path, before: before.map(Value::to_string), after: after.map(Value::to_string) }),
    }
}

pub(crate) fn changes_markup(changes: &[JsonChange]) -> Markup {
    html! {
        @if changes.is_empty() { p.hint { "Nothing has changed." } } @else {
            div.scroll tabindex="0" { table.changes {
                thead { tr { th { "Member" } th { "Before" } th { "After" } } }
                tbody {
                    @for JsonChange { path, before, after } in changes {
                        tr {
                            td { code { (path) } }
                            td.before { @if let Some(before) = before { del { (json::line(before, 200)) } } @else { span.hint { "none" } } }
                            td.after { @if let Some(after) = after { ins { (json::line(after, 200)) } } @else { span.hint { "none" } } }
                        }
                    }
                }
            } }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fold_begins_at_a_snapshot_before_the_version() {
        let version = ShownVersion { shown: 250, current: 1_000_050, snapshot: 1_000_000, at_any_cost: false };
        assert_eq!(version.fold_of(1_000_050, false), 50);
        assert_eq!(version.fold_of(250, false), 250);
        assert_eq!(version.fold_of(1_000_050, true), 1_000_050);
    }

    #[test]
    fn changes_name_the_members_that_differ() {
        let before = json!({"a": 1, "b": {"c": [1, 2]}, "same": "x"});
        let after = json!({"b": {"c": [1, 3, {"d": null}]}, "same": "x", "new": true});
        let change = |path: &str, before: Option<&str>, after: Option<&str>| JsonChange {
            path: path.to_owned(),
            before: before.map(str::to_owned),
            after: after.map(str::to_owned),
        };
        let expected = [
            change("a", Some("1"), None),
            change("b.c[1]", Some("2"), Some("3")),
            change("b.c[2]", None, Some("{\"d\":null}")),
            change("new", None, Some("true")),
        ];
        assert_eq!(changes(&before, &after), expected);
        assert_eq!(changes(&before, &before), []);
    }
}
