//! What a verification returns.

use daybook_table::AggregateKey;

use super::finding::{Discrepancy, Finding};

/// What the rows of one aggregate are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Rows of all kinds; 0 when the aggregate does not exist.
    pub rows: u64,
    /// Rows of events.
    pub events: u64,
    /// Outbox rows that are still there.
    pub messages: u64,
    /// Snapshots of the current state version, the kept ones too.
    pub snapshots: u64,
    /// Snapshots of another state version. They are ignored and replaced in time, and so not wrong.
    pub outdated: u64,
    /// What is wrong; empty when all is as it should be.
    pub findings: Vec<Finding>,
}

/// The result in the making.
pub(super) struct Report<'a> {
    pub(super) key: &'a AggregateKey,
    pub(super) verified: Verified,
}

impl Report<'_> {
    pub(super) fn add(&mut self, item: impl Into<String>, discrepancy: Discrepancy) {
        self.verified.findings.push(Finding { aggregate: self.key.clone(), item: item.into(), discrepancy });
    }
}
