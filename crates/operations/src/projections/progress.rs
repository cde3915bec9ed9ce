//! How far a rebuild is, and what it found.

use serde::{Deserialize, Serialize};

use super::visit::Visited;
use crate::call_usage::CallUsage;
use crate::listing::Position;

/// How far a rebuild is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RebuildProgress {
    pub(super) pass: Pass,
    /// Up to where the aggregates of the pass are done.
    pub(super) position: Position,
    pub counts: RebuildCounts,
    pub usage: CallUsage,
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
pub struct RebuildCounts {
    /// Aggregates of the first pass that are done.
    pub filled: u64,
    /// Aggregates of the second pass that are done.
    pub checked: u64,
    /// Aggregates that were sent to the projector, each time that they were.
    pub sent: u64,
    /// The messages that contained them.
    pub messages: u64,
    pub suspended: u64,
    /// Rows of the index that cannot be read, and aggregates without metadata.
    pub unreadable: u64,
}

/// An aggregate that the view does not show completely.
#[derive(Debug)]
pub struct RebuildFinding {
    /// `suspended` or `unreadable`.
    pub kind: &'static str,
    /// The aggregate, or the partition key of a row that belongs to none.
    pub aggregate: String,
    pub reason: String,
}

impl RebuildProgress {
    /// The progress as a text for an operator.
    pub fn text(&self) -> String {
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
    pub fn has_no_findings(&self) -> bool {
        self.counts.suspended + self.counts.unreadable == 0
    }

    /// Begins the second pass, perhaps anew.
    pub(super) fn begin_check(&mut self) {
        self.pass = Pass::Check;
        self.position = Position::default();
        self.counts = RebuildCounts { checked: 0, suspended: 0, unreadable: 0, ..self.counts };
    }

    /// Adds a batch that is done. Returns its findings.
    pub(super) fn add(&mut self, visited: &Visited) -> Vec<RebuildFinding> {
        let of_pass = if self.pass == Pass::Fill { &mut self.counts.filled } else { &mut self.counts.checked };
        *of_pass += visited.aggregates.iter().filter(|listed| listed.key.is_some()).count() as u64;
        self.counts.sent += visited.sent;
        self.counts.messages += visited.messages;
        visited.aggregates.iter().for_each(|listed| self.position.advance(listed));
        // The second pass finds them again.
        if self.pass == Pass::Fill {
            return Vec::new();
        }
        let suspended = visited.suspended.iter().map(|(key, reason)| ("suspended", key.to_string(), reason.clone()));
        let unreadable = visited.aggregates.iter().filter(|listed| listed.key.is_none()).map(|listed| {
            let reason = listed.unreadable.as_ref().map(|row| row.reason.to_string());
            let reason = reason.unwrap_or_else(|| "the row belongs to no aggregate".to_owned());
            ("unreadable", listed.name.clone(), reason)
        });
        let without = visited.without_metadata.iter().map(|key| {
            ("unreadable", key.to_string(), "it has no metadata; check it with `daybook verify`".to_owned())
        });
        let all = suspended.chain(unreadable).chain(without);
        let found: Vec<_> = all.map(|(kind, aggregate, reason)| RebuildFinding { kind, aggregate, reason }).collect();
        self.counts.suspended += visited.suspended.len() as u64;
        self.counts.unreadable += (found.len() - visited.suspended.len()) as u64;
        found
    }
}
