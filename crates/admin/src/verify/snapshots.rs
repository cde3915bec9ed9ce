//! Checks of the snapshots against the fold of the events.

use std::collections::BTreeMap;

use daybook_decider::{Folded, Json, Model, personal};
use daybook_event_store::internal::{Item, unpack};
use daybook_function_runtime::shortened;
use daybook_table::{AggregateKey, SnapshotItem, attributes};
use serde_json::Value;

use super::finding::{Discrepancy, Report};

const SHOWN: usize = 80;

pub(super) struct Snapshots<'a> {
    model: &'a dyn Model,
    key: &'a AggregateKey,
    /// Snapshots that are still to be compared, by version.
    pending: BTreeMap<u64, Vec<(String, Folded)>>,
}

impl<'a> Snapshots<'a> {
    pub(super) fn new(model: &'a dyn Model, key: &'a AggregateKey) -> Self {
        Self { model, key, pending: BTreeMap::new() }
    }

    pub(super) fn row(&mut self, sk: String, row: Item, report: &mut Report<'_>) {
        let item: SnapshotItem = match serde_dynamo::from_item(row) {
            Ok(item) => item,
            Err(error) => return report.add(sk, Discrepancy::Unreadable { reason: error.to_string() }),
        };
        if item.state_version != self.model.state_version() {
            report.verified.outdated += 1;
            return;
        }
        let version = item.last_seq_num;
        let state = unpack(item.state).map_err(|error| error.to_string());
        let state = state.and_then(|text| Json::parse(text).map_err(|error| error.to_string()));
        let restored = state.and_then(|state| {
            self.model.restore(version, item.message_seq, &state).map_err(|error| format!("state: {error}"))
        });
        match restored {
            Ok(restored) => {
                report.verified.snapshots += 1;
                self.pending.entry(version).or_default().push((sk, restored));
            }
            Err(reason) => report.add(sk, Discrepancy::Unreadable { reason }),
        }
    }

    /// Compares the snapshots of the version that the fold has reached.
    pub(super) fn compare(&mut self, folded: &Folded, report: &mut Report<'_>) {
        for (sk, snapshot) in self.pending.remove(&folded.version()).unwrap_or_default() {
            if snapshot.message_seq() != folded.message_seq() {
                let (found, expected) = (snapshot.message_seq(), folded.message_seq());
                report.add(sk.clone(), Discrepancy::differs(attributes::MESSAGE_SEQ, found, expected));
            }
            match (self.state(&snapshot), self.state(folded)) {
                (Ok(found), Ok(expected)) => {
                    if let Some((at, found, expected)) = difference(&found, &expected) {
                        let [found, expected] = [found, expected].map(|value| shown(&at, value));
                        report.add(sk, Discrepancy::differs(format!("state{at}"), found, expected));
                    }
                }
                (Err(reason), _) | (_, Err(reason)) => report.add(sk, Discrepancy::Unreadable { reason }),
            }
        }
    }

    /// Reports the remaining snapshots that are beyond the `last` event. Others remain only after a gap, which is
    /// reported itself; they cannot be checked.
    pub(super) fn finish(&mut self, last: u64, report: &mut Report<'_>) {
        let expected = match last {
            0 => "no snapshot: there are no events".to_owned(),
            _ => format!("1 to {last}, the last event"),
        };
        for (version, pending) in std::mem::take(&mut self.pending) {
            for (sk, _) in pending {
                if version > last || version == 0 {
                    report.add(sk, Discrepancy::differs(attributes::LAST_SEQ_NUM, version, &expected));
                }
            }
        }
    }

    /// The state with a subject for each personal value: a decision gives one also to those that were never set.
    fn state(&self, folded: &Folded) -> Result<Value, String> {
        let state = self.model.state(folded).map_err(|error| format!("state: {error}"))?;
        let state = personal::attributed(state, (&self.key.aggregate_type, &self.key.id))?;
        state.read().map_err(|error| format!("state: {error}"))
    }
}

/// The first difference of two values: its path, and the value on each side.
fn difference<'a>(one: &'a Value, other: &'a Value) -> Option<(String, Option<&'a Value>, Option<&'a Value>)> {
    let within = |step: String, one: Option<&'a Value>, other: Option<&'a Value>| match (one, other) {
        (Some(one), Some(other)) => difference(one, other).map(|(at, one, other)| (format!("/{step}{at}"), one, other)),
        (one, other) => Some((format!("/{step}"), one, other)),
    };
    match (one, other) {
        _ if one == other => None,
        (Value::Object(ones), Value::Object(others)) => {
            let names = ones.keys().chain(others.keys().filter(|name| !ones.contains_key(*name)));
            names.into_iter().find_map(|name| within(name.clone(), ones.get(name), others.get(name)))
        }
        (Value::Array(ones), Value::Array(others)) => {
            (0..ones.len().max(others.len())).find_map(|at| within(at.to_string(), ones.get(at), others.get(at)))
        }
        _ => Some((String::new(), Some(one), Some(other))),
    }
}

/// The text of a value at this place of a state, without what is personal.
fn shown(at: &str, value: Option<&Value>) -> String {
    let text = match value.map(Json::of) {
        Some(_) if at.contains("/$personal") => "another one".to_owned(),
        Some(Ok(json)) => personal::referring(json).text().to_owned(),
        Some(Err(_)) | None => "missing".to_owned(),
    };
    shortened(&text, SHOWN)
}
