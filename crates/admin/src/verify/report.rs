//! The result of a verification.

use std::collections::BTreeSet;

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
    /// Differences that another release may have caused, and that are not wrong.
    pub warnings: Vec<Finding>,
}

/// The result in progress.
pub(super) struct Report<'a> {
    pub(super) key: &'a AggregateKey,
    pub(super) verified: Verified,
    /// The sort keys of rows that are not as they were written.
    pub(super) changed: BTreeSet<String>,
}

impl Report<'_> {
    pub(super) fn add(&mut self, item: impl Into<String>, discrepancy: Discrepancy) {
        self.verified.findings.push(Finding { aggregate: self.key.clone(), item: item.into(), discrepancy });
    }

    /// Adds a difference that is not wrong.
    pub(super) fn warn(&mut self, item: impl Into<String>, discrepancy: Discrepancy) {
        self.verified.warnings.push(Finding { aggregate: self.key.clone(), item: item.into(), discrepancy });
    }

    /// Adds the changed rows. Those with another finding are left out: it describes the change.
    pub(super) fn add_changed(&mut self) {
        for item in std::mem::take(&mut self.changed) {
            if !self.verified.findings.iter().any(|finding| finding.item == item) {
                self.add(item, Discrepancy::Changed);
            }
        }
    }
}
