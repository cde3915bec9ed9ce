//! The messages that ring the projector: aggregates that have new events.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::keys::AggregateKey;

/// Aggregates that have new events. It contains no event: whoever receives it reads the events from the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedAggregates {
    /// The aggregates, each as `[type, id, number of its last event]`. The number is 0 where it is not known.
    ///
    /// The message may arrive before all rows of the append are visible. The number says which events must be waited for.
    changed: BTreeSet<(String, String, u64)>,
}

impl ChangedAggregates {
    /// The keys of the aggregates.
    pub fn keys(self) -> impl Iterator<Item = AggregateKey> {
        self.with_last_events().map(|(key, _)| key)
    }

    /// The keys of the aggregates, each with the number of its last event.
    pub fn with_last_events(self) -> impl Iterator<Item = (AggregateKey, u64)> {
        self.changed.into_iter().map(|(aggregate_type, id, last)| (AggregateKey { aggregate_type, id }, last))
    }
}

impl FromIterator<(AggregateKey, u64)> for ChangedAggregates {
    fn from_iter<I: IntoIterator<Item = (AggregateKey, u64)>>(aggregates: I) -> Self {
        Self { changed: aggregates.into_iter().map(|(key, last)| (key.aggregate_type, key.id, last)).collect() }
    }
}

impl FromIterator<AggregateKey> for ChangedAggregates {
    fn from_iter<I: IntoIterator<Item = AggregateKey>>(keys: I) -> Self {
        keys.into_iter().map(|key| (key, 0)).collect()
    }
}
