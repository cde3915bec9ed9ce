//! The messages that ring the projector: aggregates that have new events.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::keys::AggregateKey;

/// Aggregates that have new events. It says nothing about the events: whoever receives it reads them from the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedAggregates {
    /// The aggregates, each as `[type, id]`.
    pub changed: BTreeSet<(String, String)>,
}

impl ChangedAggregates {
    /// The keys of the aggregates.
    pub fn keys(self) -> impl Iterator<Item = AggregateKey> {
        self.changed.into_iter().map(|(aggregate_type, id)| AggregateKey { aggregate_type, id })
    }
}

impl FromIterator<AggregateKey> for ChangedAggregates {
    fn from_iter<I: IntoIterator<Item = AggregateKey>>(keys: I) -> Self {
        Self { changed: keys.into_iter().map(|key| (key.aggregate_type, key.id)).collect() }
    }
}
