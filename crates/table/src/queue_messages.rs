//! The messages of queues: of the changes queue, about aggregates that have new events, and of the reactions queue, about deadlines
//! that are due, or soon will be.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use daybook_decider::AggregateKey;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

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

    pub fn one(AggregateKey { aggregate_type, id }: AggregateKey, last: u64) -> Self {
        Self { changed: BTreeSet::from([(aggregate_type, id, last)]), process: None }
    }

    pub fn to_body(&self) -> String {
        serde_json::to_string(self).expect("texts and numbers have a JSON form")
    }

    pub fn keys(self) -> impl Iterator<Item = AggregateKey> {
        self.with_last_events().map(|(key, _)| key)
    }

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

/// A deadline of an aggregate, in the order of the times at which they are due.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DueDeadline {
    pub due: Timestamp,
    pub key: AggregateKey,
    pub name: String,
}

/// A message of the reactions queue. It is a hint: whoever receives it reads the row of each deadline from the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DueDeadlines {
    /// The deadlines, each as `[type, id, name, due]`.
    deadlines: Vec<(String, String, String, Timestamp)>,
}

impl DueDeadlines {
    /// Maximum deadlines of one message. With ids and names of the maximum length, it has some 40 KB; SQS charges 64 KB as one
    /// request.
    pub const MAX: usize = 100;

    /// Divides deadlines, in their order, into those of one message each, with the time after which the message becomes visible.
    /// Those of one message are due in the same second from now, or before now.
    pub fn of_messages(deadlines: &[DueDeadline], now: Timestamp) -> impl Iterator<Item = (Duration, &[DueDeadline])> {
        let delay = move |deadline: &DueDeadline| {
            let left = Duration::try_from(deadline.due.duration_since(now)).unwrap_or_default();
            Duration::from_secs(left.as_secs() + u64::from(left.subsec_nanos() > 0))
        };
        let of_second = deadlines.chunk_by(move |one, next| delay(one) == delay(next));
        of_second.flat_map(|of_second| of_second.chunks(Self::MAX)).map(move |chunk| (delay(&chunk[0]), chunk))
    }

    pub fn new(deadlines: &[DueDeadline]) -> Self {
        let deadlines = deadlines
            .iter()
            .map(|DueDeadline { due, key, name }| (key.aggregate_type.clone(), key.id.clone(), name.clone(), *due));
        Self { deadlines: deadlines.collect() }
    }

    pub fn to_body(&self) -> String {
        serde_json::to_string(self).expect("texts have a JSON form")
    }

    pub fn into_deadlines(self) -> impl Iterator<Item = DueDeadline> {
        self.deadlines.into_iter().map(|(aggregate_type, id, name, due)| {
            let key = AggregateKey { aggregate_type, id };
            DueDeadline { due, key, name }
        })
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

    fn deadline(id: usize, due: &str) -> DueDeadline {
        let due = format!("2026-11-28T10:{due}Z").parse().unwrap();
        DueDeadline { due, key: AggregateKey::new("seat", id.to_string()), name: "hold".to_owned() }
    }

    #[test]
    fn message_has_deadlines_of_one_second_and_is_never_visible_before_one_of_them_is_due() {
        let now = deadline(0, "00:00").due;
        let overdue = (0..=DueDeadlines::MAX).map(|id| deadline(id, "00:00"));
        let soon = ["00:00.001", "00:01", "00:01.001", "02:00"].into_iter().enumerate();
        let all: Vec<_> = overdue.chain(soon.map(|(id, due)| deadline(id, due))).collect();
        let sizes: Vec<_> =
            DueDeadlines::of_messages(&all, now).map(|(delay, of)| (delay.as_secs(), of.len())).collect();
        assert_eq!(sizes, [(0, 100), (0, 1), (1, 2), (2, 1), (120, 1)]);
        assert_eq!(DueDeadlines::of_messages(&all, now).flat_map(|(_, of)| of.to_vec()).collect::<Vec<_>>(), all);
        for (delay, of_message) in DueDeadlines::of_messages(&all, now) {
            assert!(of_message.iter().all(|deadline| now + delay >= deadline.due));
        }
    }

    #[test]
    fn body_is_read_as_it_was_written() {
        let all = [deadline(7, "00:00"), deadline(8, "00:01.5")];
        let body = DueDeadlines::new(&all).to_body();
        assert_eq!(
            body,
            r#"{"deadlines":[["seat","7","hold","2026-11-28T10:00:00Z"],["seat","8","hold","2026-11-28T10:00:01.5Z"]]}"#
        );
        assert!(serde_json::from_str::<DueDeadlines>(&body).unwrap().into_deadlines().eq(all));
    }
}
