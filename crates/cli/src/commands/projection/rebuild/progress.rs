//! How far a rebuild is, and what it found.

use daybook_view_store::View;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::visit::Visited;
use crate::operator::call_usage::CallUsage;
use crate::operator::listing::Position;

/// How far a rebuild is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RebuildProgress {
    pub(super) pass: Pass,
    /// Up to where the aggregates of the pass are done.
    pub(super) position: Position,
    pub(super) counts: RebuildCounts,
    pub(super) usage: CallUsage,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Pass {
    #[default]
    Fill,
    Check,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RebuildCounts {
    /// Aggregates of the first pass that are done.
    pub(super) filled: u64,
    /// Aggregates of the second pass that are done.
    pub(super) checked: u64,
    /// Aggregates that were sent to the projector, each time that they were.
    pub(super) sent: u64,
    /// The messages that contained them.
    pub(super) messages: u64,
    pub(super) suspended: u64,
    /// Rows of the index that cannot be read, and aggregates without metadata.
    pub(super) unreadable: u64,
}

impl RebuildProgress {
    /// The progress as a text for an operator.
    pub(crate) fn text(&self) -> String {
        match self.pass {
            Pass::Fill => format!("{} aggregates filled", self.counts.filled),
            Pass::Check => format!("{} of {} aggregates checked", self.counts.checked, self.counts.filled),
        }
    }

    /// The progress as the views table stores it.
    pub(super) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("texts and numbers have a JSON form")
    }

    /// Whether the view shows every aggregate that was checked.
    pub(super) fn has_no_findings(&self) -> bool {
        self.counts.suspended + self.counts.unreadable == 0
    }

    /// Begins the second pass, perhaps anew.
    pub(super) fn begin_check(&mut self) {
        self.pass = Pass::Check;
        self.position = Position::default();
        self.counts = RebuildCounts { checked: 0, suspended: 0, unreadable: 0, ..self.counts };
    }

    /// Adds a batch that is done. Returns the lines of its findings.
    pub(super) fn add(&mut self, view: &View, visited: &Visited) -> Vec<(Value, String)> {
        let of_pass = if self.pass == Pass::Fill { &mut self.counts.filled } else { &mut self.counts.checked };
        *of_pass += visited.aggregates.iter().filter(|listed| listed.key.is_some()).count() as u64;
        self.counts.sent += visited.sent;
        self.counts.messages += visited.messages;
        visited.aggregates.iter().for_each(|listed| self.position.advance(listed));
        // The second pass finds them again.
        if self.pass == Pass::Fill {
            return Vec::new();
        }
        let mut lines = Vec::new();
        let (name, version) = (&view.name, view.version);
        let mut add = |outcome: &str, aggregate: String, reason: String| {
            let text = format!("{view} {aggregate} {outcome}: {reason}");
            let json = json!({
                "projection": name, "version": version, "aggregate": aggregate, "outcome": outcome, "reason": reason,
            });
            lines.push((json, text));
        };
        for (key, reason) in &visited.suspended {
            self.counts.suspended += 1;
            add("suspended", key.to_string(), reason.clone());
        }
        let unreadable = visited.aggregates.iter().filter(|listed| listed.key.is_none());
        let unreadable = unreadable.map(|listed| {
            let reason = listed.unreadable.as_ref().map(|row| row.reason.to_string());
            (listed.name.clone(), reason.unwrap_or_else(|| "the row belongs to no aggregate".to_owned()))
        });
        let without = visited.without_metadata.iter();
        let without =
            without.map(|key| (key.to_string(), "it has no metadata; check it with `daybook verify`".to_owned()));
        for (aggregate, reason) in unreadable.chain(without) {
            self.counts.unreadable += 1;
            add("unreadable", aggregate, reason);
        }
        lines
    }
}
