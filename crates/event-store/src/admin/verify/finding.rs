//! What can be wrong with a row.

use std::fmt;

use daybook_table::AggregateKey;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Whose row it is.
    pub aggregate: AggregateKey,
    /// The sort key of the row; of the first one where several are missing.
    pub item: String,
    /// What is wrong with it.
    pub discrepancy: Discrepancy,
}

/// What is wrong with a row.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Discrepancy {
    /// There are rows, and no metadata.
    #[error("there is no metadata")]
    NoMetadata,
    /// Events that must be there: later ones are, or the metadata or their append goes so far.
    #[error("{}", missing(*first, *last))]
    EventsMissing {
        /// The first that is missing.
        first: u64,
        /// The last of those that are missing with it.
        last: u64,
    },
    /// A message that its event counts as announced, and whose row nothing may have deleted yet.
    #[error("message {message_seq} is missing, and its time has not passed")]
    MessageMissing {
        /// Its number among the aggregate's.
        message_seq: u64,
    },
    /// A row that cannot be read, by this code at least.
    #[error("it cannot be read: {reason}")]
    Unreadable {
        /// Why not.
        reason: String,
    },
    /// An attribute that disagrees with the rest of the rows.
    #[error("{attribute} is {found}, expected {expected}")]
    Differs {
        /// The attribute, and where in it.
        attribute: String,
        /// Its value.
        found: String,
        /// Its value by the rest.
        expected: String,
    },
    /// An id that was given twice.
    #[error("{attribute} {value} belongs to {first} already")]
    Repeated {
        /// The attribute.
        attribute: &'static str,
        /// The id.
        value: String,
        /// The sort key of the row that had it first.
        first: String,
    },
    /// An event that the metadata does not know of: the next append will fail on it.
    #[error("the metadata says that the stream ends with event {version}")]
    BeyondMetadata {
        /// The version in the metadata.
        version: u64,
    },
    /// Events of one append that do not agree on where it ends.
    #[error("{reason}")]
    TornAppend {
        /// How they disagree.
        reason: String,
    },
    /// A message that no event announced.
    #[error("{reason}")]
    Unannounced {
        /// How its event disagrees.
        reason: String,
    },
    /// A row of a kind that this code does not write.
    #[error("no row has such a sort key")]
    UnknownRow,
}

impl Discrepancy {
    /// A short name that stays the same: `missing`, `unreadable`, `differs`, `repeated`, `beyond-metadata`,
    /// `torn-append`, `unannounced` or `unknown-row`.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoMetadata | Self::EventsMissing { .. } | Self::MessageMissing { .. } => "missing",
            Self::Unreadable { .. } => "unreadable",
            Self::Differs { .. } => "differs",
            Self::Repeated { .. } => "repeated",
            Self::BeyondMetadata { .. } => "beyond-metadata",
            Self::TornAppend { .. } => "torn-append",
            Self::Unannounced { .. } => "unannounced",
            Self::UnknownRow => "unknown-row",
        }
    }

    pub(super) fn differs(attribute: impl Into<String>, found: impl fmt::Display, expected: impl fmt::Display) -> Self {
        Self::Differs { attribute: attribute.into(), found: found.to_string(), expected: expected.to_string() }
    }
}

impl Finding {
    /// Whether another read found the same, though the stream may have gone on in between.
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
