//! The possible findings of a verification.

use std::fmt;

use daybook_table::AggregateKey;

/// One discrepancy of one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The aggregate of the row.
    pub aggregate: AggregateKey,
    /// The sort key of the row, or of the first row when several are missing.
    pub item: String,
    pub discrepancy: Discrepancy,
}

/// A discrepancy of a row.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Discrepancy {
    /// There are rows but no metadata.
    #[error("there is no metadata")]
    NoMetadata,
    /// Missing events: later events exist, or the metadata or their append reaches beyond them.
    #[error("{}", missing(*first, *last))]
    EventsMissing {
        /// The first missing event.
        first: u64,
        /// The last missing event of this gap.
        last: u64,
    },
    /// A missing message: its event counts it, and its row cannot have expired yet.
    #[error("message {message_seq} is missing, and its row cannot have expired yet")]
    MessageMissing {
        /// Its number among the aggregate's messages.
        message_seq: u64,
    },
    /// A row that this code cannot read.
    #[error("it cannot be read: {reason}")]
    Unreadable { reason: String },
    /// An attribute that disagrees with the other rows.
    #[error("{attribute} is {found}, expected {expected}")]
    Differs {
        /// The attribute, and the path within it.
        attribute: String,
        /// Its value.
        found: String,
        /// Its value according to the other rows.
        expected: String,
    },
    /// An id that occurs twice.
    #[error("{attribute} {value} belongs to {first} already")]
    Repeated {
        attribute: &'static str,
        /// The id.
        value: String,
        /// The sort key of the row that had it first.
        first: String,
    },
    /// An event beyond the version in the metadata: the next append will fail on it.
    #[error("according to the metadata, the stream ends at event {version}")]
    BeyondMetadata {
        /// The version in the metadata.
        version: u64,
    },
    /// Events of one append that disagree on where it ends.
    #[error("{reason}")]
    AppendEndsDiffer {
        /// The disagreement.
        reason: String,
    },
    /// A message that no event counts.
    #[error("{reason}")]
    Unannounced {
        /// The disagreement with its event.
        reason: String,
    },
    /// A row that is not as it was written, although no other row contradicts it.
    #[error("it is not as it was written: it has no checksum that matches")]
    Changed,
    /// A message that differs from the one that this code publishes for its event. Another release may have written it.
    #[error(
        "{attribute} is not what this release publishes for event {seq_num}; another release may have written the row"
    )]
    DiffersFromCode {
        attribute: &'static str,
        /// The number of the event.
        seq_num: u64,
    },
    /// A row of a kind that this code does not write.
    #[error("this code writes no row with such a sort key")]
    UnknownRow,
}

impl Discrepancy {
    /// A short, stable name: `missing`, `unreadable`, `differs`, `repeated`, `beyond-metadata`, `torn-append`,
    /// `unannounced`, `changed`, `differs-from-code` or `unknown-row`.
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
