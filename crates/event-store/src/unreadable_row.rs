//! Rows that cannot be read. Lists and feeds report them beside the readable items, so that one unreadable row does not
//! hide the others.

use std::fmt;

use daybook_table::{AggregateKey, attributes, keys};

use crate::item::{Item, text};

/// Maximum characters of a reason: it may quote a value of the row.
const MAX_REASON: usize = 300;

/// A row that this code cannot read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableRow {
    pub pk: String,
    pub sk: String,
    /// The reason. It is for operators: it may quote stored data.
    pub reason: String,
}

impl UnreadableRow {
    /// The row with the keys of an item, and without a reason yet.
    pub fn of(item: &Item) -> Self {
        let key = |name| text(item, name).to_owned();
        Self { pk: key(attributes::PK), sk: key(attributes::SK), reason: String::new() }
    }

    /// The row with the reason why it cannot be read.
    #[must_use]
    pub fn because(self, reason: impl fmt::Display) -> Self {
        Self { reason: reason.to_string().chars().take(MAX_REASON).collect(), ..self }
    }

    /// The aggregate of the row, if its partition key is that of an aggregate.
    pub fn aggregate(&self) -> Option<AggregateKey> {
        keys::aggregate_of_pk(&self.pk)
    }

    /// The number of the event, if its sort key is that of an event.
    pub fn seq_num(&self) -> Option<u64> {
        keys::event_seq_num(&self.sk)
    }
}

impl fmt::Display for UnreadableRow {
    /// Its keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.pk, self.sk)
    }
}
