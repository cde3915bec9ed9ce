//! The result of a verification.

use daybook_table::AggregateKey;

use super::finding::{Discrepancy, Finding};

/// The counts and findings of the rows of one aggregate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Rows of all kinds; 0 when the aggregate does not exist.
    pub rows: u64,
    /// Rows of events.
    pub events: u64,
    /// Outbox rows that still exist.
    pub messages: u64,
    /// Snapshots of the current state version, including kept ones.
    pub snapshots: u64,
    /// Snapshots of another state version. They are not wrong: they are ignored, and replaced or deleted in time.
    pub outdated: u64,
    /// The findings; empty when nothing is wrong.
    pub findings: Vec<Finding>,
}

/// The result in progress.
pub(super) struct Report<'a> {
    pub(super) key: &'a AggregateKey,
    pub(super) verified: Verified,
}

impl Report<'_> {
    pub(super) fn add(&mut self, item: impl Into<String>, discrepancy: Discrepancy) {
        self.verified.findings.push(Finding { aggregate: self.key.clone(), item: item.into(), discrepancy });
    }
}
