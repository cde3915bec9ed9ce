//! The messages of the queue: aggregates that have new events.

use std::collections::BTreeSet;

use daybook_table::AggregateKey;
use serde::{Deserialize, Serialize};

/// The body of a message. The relay writes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    /// The aggregates, as `[type, id]`.
    pub changed: BTreeSet<(String, String)>,
}

impl Changed {
    /// The aggregates.
    pub fn aggregates(self) -> impl Iterator<Item = AggregateKey> {
        self.changed.into_iter().map(|(aggregate_type, id)| AggregateKey { aggregate_type, id })
    }
}

impl FromIterator<AggregateKey> for Changed {
    fn from_iter<I: IntoIterator<Item = AggregateKey>>(aggregates: I) -> Self {
        Self { changed: aggregates.into_iter().map(|key| (key.aggregate_type, key.id)).collect() }
    }
}
