//! The search for messages on the bus.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::messaging::bus::{Bus, Delivered, State, WaitingMessage, unreadable};
use crate::messaging::sqs::TargetRecord;
use crate::state::{BusQuery, DataFileError};

/// Maximum entries that are read to find those that match.
const MAX_SEARCHED: usize = 10_000;

const MAX_MESSAGES: usize = 500;

/// Which messages on the bus; all if no member is set.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MessageQuery {
    /// Only those of an aggregate, `TYPE/ID`, or of a type, `TYPE/`.
    pub aggregate: Option<String>,
    /// Only those whose type contains the text.
    pub message_type: Option<String>,
    /// Only those whose detail contains the text.
    pub containing: Option<String>,
    /// Only those of one business transaction. Without effect together with `ids`.
    pub correlation: Option<String>,
    /// Only those with one of these message ids.
    pub ids: Option<Vec<String>>,
    pub after: Option<usize>,
    pub before: Option<usize>,
    /// The maximum number; the last ones are returned.
    pub limit: Option<usize>,
    /// Whether all dead-letter messages are returned, too.
    pub with_dead_letters: bool,
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct BusPart {
    /// The last ones, in order of arrival.
    pub messages: Vec<FoundMessage>,
    /// The number of all that match, from the position `searched_from` on.
    pub matching: usize,
    /// The first position that was compared with the query.
    pub searched_from: usize,
    /// The position of the last message of all; 0 before the first.
    pub last: usize,
    /// All dead-letter messages, if the query asks for them.
    pub dead_letters: Vec<WaitingMessage>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct FoundMessage {
    /// Its position among all messages, counted from 1.
    pub position: usize,
    pub entry: Delivered,
    /// What became of it in the queues of rules, since the start of the process. Only the last 10,000 messages have records.
    pub targets: Vec<TargetRecord>,
}

impl MessageQuery {
    /// The most selective part that has an index: a column of the entries, and the values of which they have one.
    fn key(&self) -> Option<(&'static str, String)> {
        let ids = self.ids.as_ref().map(|ids| ("message_id", json!(ids)));
        let correlation = self.correlation.as_ref().map(|id| ("correlation_id", json!([id])));
        let aggregate = self.aggregate.as_ref().filter(|aggregate| !aggregate.ends_with('/'));
        let key = ids.or(correlation).or(aggregate.map(|aggregate| ("resource", json!([aggregate]))));
        key.map(|(column, values): (_, Value)| (column, values.to_string()))
    }

    /// Whether the key selects everything that the query does.
    fn is_key(&self) -> bool {
        let Self { aggregate, message_type, containing, correlation, ids, .. } = self;
        let keys = [ids.is_some(), correlation.is_some(), aggregate.is_some()].into_iter().filter(|is_some| *is_some);
        keys.count() <= 1
            && message_type.is_none()
            && containing.is_none()
            && !aggregate.as_ref().is_some_and(|aggregate| aggregate.ends_with('/'))
    }

    /// Whether the query selects an entry that has its key.
    fn matches(&self, entry: &Delivered) -> bool {
        let contains = |text: &str, wanted: &str| text.to_lowercase().contains(&wanted.to_lowercase());
        let is_of = |wanted: &String, resource: &String| {
            resource == wanted || (wanted.ends_with('/') && resource.starts_with(wanted.as_str()))
        };
        self.aggregate.as_ref().is_none_or(|wanted| entry.resources.iter().any(|resource| is_of(wanted, resource)))
            && self.message_type.as_ref().is_none_or(|wanted| contains(&entry.detail_type, wanted))
            && self.containing.as_ref().is_none_or(|wanted| contains(&entry.detail, wanted))
    }
}

impl Bus {
    /// The last messages that a query selects. Only the last 10,000 that have its key are compared with the rest of it. No other
    /// messages are read.
    pub fn messages(&self, query: &MessageQuery) -> BusPart {
        let mut part = self.state().messages(query).inspect_err(unreadable).unwrap_or_default();
        if query.with_dead_letters {
            part.dead_letters = self.waiting_dead_letters();
        }
        part
    }
}

impl State {
    fn messages(&self, query: &MessageQuery) -> Result<BusPart, DataFileError> {
        let last = self.stored.last_of_bus()?;
        let start = query.after.map_or(1, |after| after.saturating_add(1)).min(last + 1);
        let end = query.before.unwrap_or(usize::MAX).clamp(start, last + 1);
        let limit = query.limit.unwrap_or(MAX_MESSAGES).min(MAX_MESSAGES);
        let candidates = BusQuery { positions: start..end, key: query.key() };
        let count =
            if candidates.key.is_some() { self.stored.count_of_bus(&candidates)? } else { candidates.positions.len() };
        let (mut matching, mut searched_from) = (count, start);
        let mut entries = self.stored.entries_of_bus(&candidates, if query.is_key() { limit } else { MAX_SEARCHED })?;
        if !query.is_key() {
            if let Some((first, _)) = entries.first().filter(|_| entries.len() < count) {
                searched_from = *first;
            }
            entries.retain(|(_, entry)| query.matches(entry));
            matching = entries.len();
            entries.drain(..matching.saturating_sub(limit));
        }
        let message = |(position, entry): (usize, Delivered)| FoundMessage {
            position,
            targets: self.queues.records.of_event(&entry.event_id).to_vec(),
            entry,
        };
        let messages = entries.into_iter().map(message).collect();
        Ok(BusPart { messages, matching, searched_from, last, dead_letters: Vec::new() })
    }
}
