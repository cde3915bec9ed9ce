//! The possible findings of a verification, and its result.

use std::collections::BTreeSet;
use std::fmt;

use daybook_table::AggregateKey;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub aggregate: AggregateKey,
    /// The sort key of the row, or of the first row when several are missing.
    pub item: String,
    pub discrepancy: Discrepancy,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Discrepancy {
    #[error("there is no metadata")]
    NoMetadata,
    /// Missing events: later events exist, or the metadata or their append reaches beyond them.
    #[error("{}", missing(*first, *last))]
    EventsMissing { first: u64, last: u64 },
    /// A missing message: its event counts it, and its row cannot have expired yet.
    #[error("message {message_seq} is missing, and its row cannot have expired yet")]
    MessageMissing { message_seq: u64 },
    #[error("it cannot be read: {reason}")]
    Unreadable { reason: String },
    #[error("{attribute} is {found}, expected {expected}")]
    Differs { attribute: String, found: String, expected: String },
    #[error("{attribute} {value} belongs to {first} already")]
    Repeated { attribute: &'static str, value: String, first: String },
    /// An event beyond the version in the metadata: the next append will fail on it.
    #[error("according to the metadata, the stream ends at event {version}")]
    BeyondMetadata { version: u64 },
    /// Events of one append that disagree on where it ends.
    #[error("{reason}")]
    AppendEndsDiffer { reason: String },
    /// A message that no event counts.
    #[error("{reason}")]
    Unannounced { reason: String },
    /// A row that is not as it was written, although no other row contradicts it.
    #[error("it is not as it was written: it has no checksum that matches")]
    Changed,
    #[error(
        "{attribute} is not what this release publishes for event {seq_num}; another release may have written the row"
    )]
    DiffersFromCode { attribute: &'static str, seq_num: u64 },
    #[error("the aggregate does not have it, {holder} does")]
    ClaimMissing { holder: String },
    #[error("{holder} has it, and not in its state")]
    ClaimStale { holder: String },
    #[error("the state has it, due {due}, and there is no row of it")]
    DeadlineMissing { due: String },
    #[error("it is not in the state")]
    DeadlineStale,
    #[error("a personal value is stored in plain text: it was stored before its field was personal")]
    PlainText,
    #[error("a claim contains a personal value in plain text: begin its name with personal-")]
    PlainClaim,
    #[error("the state is forgotten, and the key of its personal data is there again: run daybook forget")]
    KeyRemains,
    #[error("the personal data is forgotten, and the state does not say so: run daybook forget")]
    KeyEnded,
    #[error("this code writes no row with such a sort key")]
    UnknownRow,
}

impl Discrepancy {
    /// A short, stable name: `missing`, `unreadable`, `differs`, `repeated`, `beyond-metadata`, `torn-append`,
    /// `unannounced`, `changed`, `differs-from-code`, `claim`, `deadline`, `personal` or `unknown-row`.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoMetadata | Self::EventsMissing { .. } | Self::MessageMissing { .. } => "missing",
            Self::Unreadable { .. } => "unreadable",
            Self::Differs { .. } => "differs",
            Self::Repeated { .. } => "repeated",
            Self::BeyondMetadata { .. } => "beyond-metadata",
            Self::AppendEndsDiffer { .. } => "torn-append",
            Self::Unannounced { .. } => "unannounced",
            Self::Changed => "changed",
            Self::DiffersFromCode { .. } => "differs-from-code",
            Self::ClaimMissing { .. } | Self::ClaimStale { .. } => "claim",
            Self::DeadlineMissing { .. } | Self::DeadlineStale => "deadline",
            Self::PlainText | Self::PlainClaim | Self::KeyRemains | Self::KeyEnded => "personal",
            Self::UnknownRow => "unknown-row",
        }
    }

    pub(super) fn differs(attribute: impl Into<String>, found: impl fmt::Display, expected: impl fmt::Display) -> Self {
        Self::Differs { attribute: attribute.into(), found: found.to_string(), expected: expected.to_string() }
    }
}

impl Finding {
    /// Whether another read made the same finding, even if events were appended in between.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let attribute = |discrepancy: &Discrepancy| match discrepancy {
            Discrepancy::Differs { attribute, .. } => attribute.clone(),
            _ => String::new(),
        };
        self.aggregate == other.aggregate
            && self.item == other.item
            && std::mem::discriminant(&self.discrepancy) == std::mem::discriminant(&other.discrepancy)
            && attribute(&self.discrepancy) == attribute(&other.discrepancy)
    }
}

impl fmt::Display for Finding {
    /// One line: `account/123 EVENT#000000000004 missing: event 4 is missing`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}: {}", self.aggregate, self.item, self.discrepancy.code(), self.discrepancy)
    }
}

fn missing(first: u64, last: u64) -> String {
    if first == last { format!("event {first} is missing") } else { format!("events {first} to {last} are missing") }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Rows of all kinds; 0 when the aggregate does not exist.
    pub rows: u64,
    pub events: u64,
    /// Outbox rows that still exist.
    pub messages: u64,
    /// Snapshots of the current state version, including kept ones.
    pub snapshots: u64,
    /// Snapshots of another state version. They are not wrong: they are ignored, and replaced or deleted in time.
    pub outdated: u64,
    pub findings: Vec<Finding>,
    /// What another release has caused or may have caused, and that needs no correction.
    pub warnings: Vec<Finding>,
}

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
