//! The messages of the changes queue: aggregates that have new events.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use daybook_decider::AggregateKey;

/// Aggregates that have new events. It contains no event: whoever receives it reads the events from the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedAggregates {
    /// The aggregates, each as `[type, id, number of its last event]`. The number is 0 where it is not known.
    ///
    /// The message may arrive before all rows of the append are visible. The number says which events must be waited for.
    changed: BTreeSet<(String, String, u64)>,
    /// The type of processes that lack events of the aggregates. Without it, all that follow them read their events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<String>,
}

impl ChangedAggregates {
    /// Maximum aggregates of one message. With ids of the maximum length, it has some 30 KB; SQS charges 64 KB as one
    /// request.
    pub const MAX: usize = 100;

    /// The messages about these aggregates, each with the number of its last event: one for each [`MAX`](Self::MAX).
    pub fn messages(aggregates: &BTreeMap<AggregateKey, u64>) -> Vec<Self> {
        let aggregates: Vec<_> = aggregates.iter().collect();
        let changed = |(key, last): &(&AggregateKey, &u64)| (key.aggregate_type.clone(), key.id.clone(), **last);
        let message = |chunk: &[_]| Self { changed: chunk.iter().map(changed).collect(), process: None };
        aggregates.chunks(Self::MAX).map(message).collect()
    }

    /// The message about one aggregate, whose last event has this number.
    pub fn one(AggregateKey { aggregate_type, id }: AggregateKey, last: u64) -> Self {
        Self { changed: BTreeSet::from([(aggregate_type, id, last)]), process: None }
    }

    /// The message as the body that the queue contains.
    pub fn to_body(&self) -> String {
        serde_json::to_string(self).expect("texts and numbers have a JSON form")
    }

    pub fn keys(self) -> impl Iterator<Item = AggregateKey> {
        self.with_last_events().map(|(key, _)| key)
    }

    /// The keys of the aggregates, each with the number of its last event.
    pub fn with_last_events(self) -> impl Iterator<Item = (AggregateKey, u64)> {
        self.changed.into_iter().map(|(aggregate_type, id, last)| (AggregateKey { aggregate_type, id }, last))
    }
}

/// An aggregate that has new events, as a function learns of it.
#[derive(Debug, Default)]
pub struct Changed<S> {
    /// An event with this number exists; 0 if none is known.
    pub last: u64,
    /// The messages or stream records that name the aggregate.
    pub sources: Vec<S>,
}

impl<S> Changed<S> {
    pub fn add(&mut self, last: u64, source: S) {
        self.last = self.last.max(last);
        self.sources.push(source);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_contain_each_aggregate_once_and_a_hundred_at_most() {
        let sizes = |count: usize| {
            let all: BTreeMap<_, _> = (0..count).map(|id| (AggregateKey::new("order", id.to_string()), 7)).collect();
            let messages = ChangedAggregates::messages(&all);
            let sizes: Vec<_> = messages.iter().map(|message| message.changed.len()).collect();
            assert_eq!(
                messages.into_iter().flat_map(ChangedAggregates::with_last_events).collect::<BTreeMap<_, _>>(),
                all
            );
            sizes
        };
        assert_eq!((sizes(0), sizes(100), sizes(201)), (vec![], vec![100], vec![100, 100, 1]));
        let one = ChangedAggregates::one(AggregateKey::new("order", "1"), 3);
        assert_eq!(one.to_body(), r#"{"changed":[["order","1",3]]}"#);
    }
}
