//! What became of the events that rules sent to queues: when a consumer received and processed each of them.

use std::collections::{HashMap, VecDeque};

use serde::Serialize;

/// Maximum events whose records stay in memory. The records of the oldest events are dropped first.
const MAX_EVENTS: usize = 10_000;

/// The records, by event. They end with the process.
#[derive(Default)]
pub(crate) struct TargetRecords {
    by_event: HashMap<String, Vec<TargetRecord>>,
    /// The event of each message in `by_event`.
    event_of: HashMap<String, String>,
    /// The events, in order of arrival.
    order: VecDeque<String>,
}

/// What became of an event in one queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TargetRecord {
    pub queue: String,
    /// When the queue got it, in milliseconds since 1970, like the other times.
    pub sent_at: u64,
    pub receives: u32,
    /// When it was received for the first time.
    pub first_received_at: Option<u64>,
    /// When a consumer deleted it, or it moved to the dead-letter queue.
    pub ended_at: Option<u64>,
    /// Which of both; `None` while it is in the queue.
    pub outcome: Option<TargetOutcome>,
    #[serde(skip)]
    message_id: String,
}

/// How an event has left a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TargetOutcome {
    /// A consumer has deleted it, which it does after it has processed it.
    Processed,
    /// It was received too often, or could not be sent to the queue.
    DeadLettered,
}

impl TargetRecords {
    /// What became of an event, one record for each message that it caused.
    pub(crate) fn of_event(&self, event_id: &str) -> &[TargetRecord] {
        self.by_event.get(event_id).map_or(&[], Vec::as_slice)
    }

    /// Records that a queue got an event as a message.
    pub(crate) fn add(&mut self, event_id: &str, message_id: &str, queue: &str, now: u64) {
        if !self.by_event.contains_key(event_id) {
            self.order.push_back(event_id.to_owned());
        }
        self.event_of.insert(message_id.to_owned(), event_id.to_owned());
        self.by_event.entry(event_id.to_owned()).or_default().push(TargetRecord {
            queue: queue.to_owned(),
            sent_at: now,
            receives: 0,
            first_received_at: None,
            ended_at: None,
            outcome: None,
            message_id: message_id.to_owned(),
        });
        while self.order.len() > MAX_EVENTS {
            let oldest = self.order.pop_front().unwrap_or_default();
            for record in self.by_event.remove(&oldest).unwrap_or_default() {
                self.event_of.remove(&record.message_id);
            }
        }
    }

    /// Records that a message was received from its queue.
    pub(crate) fn receive(&mut self, message_id: &str, now: u64) {
        if let Some(record) = self.record(message_id) {
            record.receives += 1;
            record.first_received_at.get_or_insert(now);
        }
    }

    /// Records that a message has left its queue.
    pub(crate) fn end(&mut self, message_id: &str, outcome: TargetOutcome, now: u64) {
        if let Some(record) = self.record(message_id) {
            (record.ended_at, record.outcome) = (Some(now), Some(outcome));
        }
    }

    /// The record of a message that has not left its queue. What happens to it in a dead-letter queue is not recorded.
    fn record(&mut self, message_id: &str) -> Option<&mut TargetRecord> {
        let records = self.by_event.get_mut(self.event_of.get(message_id)?)?;
        records.iter_mut().find(|record| record.message_id == message_id && record.outcome.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_the_oldest_events_are_dropped() {
        let mut records = TargetRecords::default();
        for number in 0..=MAX_EVENTS {
            records.add(&format!("e{number}"), &format!("m{number}"), "billing", 1);
        }
        assert_eq!((records.of_event("e0"), records.of_event("e1").len()), (&[][..], 1));
        assert_eq!((records.by_event.len(), records.event_of.len()), (MAX_EVENTS, MAX_EVENTS));
        records.end("m0", TargetOutcome::Processed, 2);
    }

    #[test]
    fn record_of_a_dead_letter_message_does_not_change_when_that_is_received_and_deleted() {
        let mut records = TargetRecords::default();
        records.add("e", "m", "billing", 1);
        records.end("m", TargetOutcome::DeadLettered, 2);
        let before = records.of_event("e").to_vec();
        records.receive("m", 3);
        records.end("m", TargetOutcome::Processed, 4);
        assert_eq!(records.of_event("e"), before);
    }
}
