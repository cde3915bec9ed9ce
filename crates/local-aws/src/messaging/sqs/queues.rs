//! Standard queues: a received message is hidden until its visibility timeout ends or it is deleted. What became of the events
//! that rules sent to queues: when a consumer received and processed each of them.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::clock::LocalClock;
use crate::json_protocol::CallError;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueueMessage {
    pub message_id: String,
    pub queue_url: String,
    pub body: String,
    /// The message attributes that hold text.
    pub attributes: BTreeMap<String, String>,
}

/// All queues. A queue is known by the last part of its URL, whatever the host.
#[derive(Default)]
pub(crate) struct Queues {
    pub(crate) names: BTreeSet<String>,
    /// Every message that is in a queue, in order of arrival.
    pub(crate) queued: Vec<Queued>,
    /// By the name of a queue, how often a message is received, and the dead-letter queue to which it goes then.
    redrive: BTreeMap<String, (u32, String)>,
    pub(crate) records: TargetRecords,
    pub(crate) changed: Arc<Notify>,
    /// The clock of the times that are shown, and of delays. Received messages are hidden by the machine's clock.
    pub(crate) clock: LocalClock,
}

pub(crate) struct Queued {
    pub(crate) message: QueueMessage,
    pub(crate) sent: u64,
    pub(crate) receives: u32,
    pub(crate) first_received: u64,
    /// The handle of the latest receipt.
    pub(crate) handle: Option<String>,
    hidden_until: Option<Instant>,
    /// When its delay ends, in milliseconds since 1970.
    delayed_until: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) visible: usize,
    /// Received, and not deleted.
    pub(crate) hidden: usize,
    pub(crate) delayed: usize,
}

impl Queued {
    /// Whether it is hidden at this time of the clock, in milliseconds since 1970.
    fn is_hidden(&self, now: u64) -> bool {
        now < self.delayed_until || self.hidden_until.is_some_and(|until| Instant::now() < until)
    }

    /// When it becomes visible, if its clock is not moved; `None` if it is.
    fn shown_at(&self, now: u64) -> Option<Instant> {
        let delay = self.delayed_until.saturating_sub(now);
        let delayed_until = (delay > 0).then(|| Instant::now() + Duration::from_millis(delay));
        self.hidden_until.max(delayed_until)
    }

    fn has(&self, queue_url: &str, handle: &str) -> bool {
        self.is_of(queue_url) && self.handle.as_deref() == Some(handle)
    }

    fn is_of(&self, queue_url: &str) -> bool {
        name_of(&self.message.queue_url) == name_of(queue_url)
    }
}

/// The name of a queue in its name, URL or ARN.
pub(crate) fn name_of(queue: &str) -> &str {
    queue.rsplit(['/', ':']).next().unwrap_or_default()
}

pub(crate) const DEAD_LETTER_QUEUE_SUFFIX: &str = "-dlq";

/// The dead-letter queue of a rule's queue, in the same form: name, URL or ARN.
pub(crate) fn dead_letter_queue_of(queue: &str) -> String {
    format!("{queue}{DEAD_LETTER_QUEUE_SUFFIX}")
}

impl Queues {
    pub(crate) fn new(clock: LocalClock) -> Self {
        Self { clock, ..Self::default() }
    }

    pub(crate) fn create(&mut self, queue: &str) {
        self.names.insert(name_of(queue).to_owned());
    }

    pub(crate) fn remove(&mut self, queue: &str) {
        self.names.remove(name_of(queue));
        self.queued.retain(|queued| !queued.is_of(queue));
    }

    pub(crate) fn check(&self, queue_url: &str) -> Result<(), CallError> {
        if self.names.contains(name_of(queue_url)) {
            return Ok(());
        }
        Err(CallError::bad_request("QueueDoesNotExist", "The specified queue does not exist."))
    }

    /// Adds a message, which becomes visible after a duration of the clock.
    pub(crate) fn send(&mut self, message: QueueMessage, delay: Duration) {
        let (sent, first_received, handle, hidden_until) = (self.clock.milliseconds(), 0, None, None);
        let delayed_until = sent.saturating_add(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX));
        self.queued.push(Queued { message, sent, receives: 0, first_received, handle, hidden_until, delayed_until });
        self.changed.notify_waiters();
    }

    pub(crate) fn set_redrive(&mut self, queue: &str, max_receives: u32, dead_letter_queue: &str) {
        self.redrive.insert(name_of(queue).to_owned(), (max_receives, dead_letter_queue.to_owned()));
    }

    /// Takes the visible messages of a queue that were received too often, each with the dead-letter queue.
    pub(crate) fn take_exhausted(&mut self, queue_url: &str) -> Vec<(QueueMessage, String)> {
        let Some((max_receives, dead_letter_queue)) = self.redrive.get(name_of(queue_url)) else { return Vec::new() };
        let now = self.clock.milliseconds();
        let is_exhausted =
            |queued: &mut Queued| queued.is_of(queue_url) && !queued.is_hidden(now) && queued.receives >= *max_receives;
        let taken = self.queued.extract_if(.., is_exhausted);
        let taken: Vec<_> = taken.map(|queued| (queued.message, dead_letter_queue.clone())).collect();
        for (message, _) in &taken {
            self.records.end(&message.message_id, TargetOutcome::DeadLettered, self.clock.milliseconds());
        }
        taken
    }

    pub(crate) fn remove_message(&mut self, message_id: &str) -> bool {
        let before = self.queued.len();
        self.queued.retain(|queued| queued.message.message_id != message_id);
        self.queued.len() < before
    }

    /// Receives a maximum of `most` messages, and hides them for a duration.
    pub(crate) fn receive(&mut self, queue_url: &str, most: usize, hide: Duration) -> Vec<&Queued> {
        let now = self.clock.milliseconds();
        let is_visible = |queued: &&mut Queued| queued.is_of(queue_url) && !queued.is_hidden(now);
        let mut received = Vec::new();
        for queued in self.queued.iter_mut().filter(is_visible).take(most) {
            queued.receives += 1;
            self.records.receive(&queued.message.message_id, self.clock.milliseconds());
            if queued.receives == 1 {
                queued.first_received = self.clock.milliseconds();
            }
            queued.handle = Some(format!("{}/{}", queued.message.message_id, queued.receives));
            queued.hidden_until = Some(Instant::now() + hide);
            received.push(&*queued);
        }
        received
    }

    /// The time at which the next hidden message of a queue becomes visible again.
    pub(crate) fn next_to_show(&self, queue_url: &str) -> Option<Instant> {
        let now = self.clock.milliseconds();
        self.of_queue(queue_url).filter_map(|queued| queued.shown_at(now)).min()
    }

    pub(crate) fn counts(&self, queue_url: &str) -> Counts {
        let (now, mut counts) = (self.clock.milliseconds(), Counts::default());
        for queued in self.of_queue(queue_url) {
            let count = match queued.is_hidden(now) {
                false => &mut counts.visible,
                true if queued.receives == 0 => &mut counts.delayed,
                true => &mut counts.hidden,
            };
            *count += 1;
        }
        counts
    }

    /// Deletes the message of a receipt, and returns it. An older receipt of a message and a receipt of a deleted
    /// message delete nothing; both calls succeed.
    pub(crate) fn delete(&mut self, queue_url: &str, handle: &str) -> Result<Option<QueueMessage>, CallError> {
        self.check(queue_url)?;
        check_handle(handle)?;
        let position = self.queued.iter().position(|queued| queued.has(queue_url, handle));
        let deleted = position.map(|position| self.queued.remove(position).message);
        if let Some(message) = &deleted {
            self.records.end(&message.message_id, TargetOutcome::Processed, self.clock.milliseconds());
        }
        Ok(deleted)
    }

    /// Hides the message of its latest receipt for a duration from now on, even if it is visible again; 0 makes it
    /// visible at once.
    pub(crate) fn hide(&mut self, queue_url: &str, handle: &str, hide: Duration) -> Result<(), CallError> {
        self.check(queue_url)?;
        check_handle(handle)?;
        let Some(queued) = self.queued.iter_mut().find(|queued| queued.has(queue_url, handle)) else {
            let message = format!(
                "Value {handle} for parameter ReceiptHandle is invalid. Reason: Message does not exist or is not available for \
                 visibility timeout change."
            );
            return Err(CallError::bad_request("InvalidParameterValueException", &message));
        };
        queued.hidden_until = Some(Instant::now() + hide);
        self.changed.notify_waiters();
        Ok(())
    }

    fn of_queue(&self, queue_url: &str) -> impl Iterator<Item = &Queued> {
        self.queued.iter().filter(move |queued| queued.is_of(queue_url))
    }
}

/// Checks the form of a receipt handle: a message id and the number of the receive.
fn check_handle(handle: &str) -> Result<(), CallError> {
    let is_handle =
        handle.split_once('/').is_some_and(|(id, receive)| id.len() == 36 && receive.parse::<u32>().is_ok());
    let message = format!("The input receipt handle \"{handle}\" is not a valid receipt handle.");
    if is_handle { Ok(()) } else { Err(CallError::bad_request("ReceiptHandleIsInvalid", &message)) }
}

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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetRecord {
    pub queue: String,
    /// When the queue got it, in milliseconds since 1970, like the other times.
    pub sent_at: u64,
    pub receives: u32,
    pub first_received_at: Option<u64>,
    /// When a consumer deleted it, or it moved to the dead-letter queue.
    pub ended_at: Option<u64>,
    /// Which of both; `None` while it is in the queue.
    pub outcome: Option<TargetOutcome>,
    #[serde(skip)]
    message_id: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

    pub(crate) fn add(&mut self, event_id: &str, message_id: &str, queue: &str, now: u64) {
        if !self.by_event.contains_key(event_id) {
            self.order.push_back(event_id.to_owned());
        }
        self.event_of.insert(message_id.to_owned(), event_id.to_owned());
        let (queue, message_id) = (queue.to_owned(), message_id.to_owned());
        let record = TargetRecord { queue, sent_at: now, message_id, ..TargetRecord::default() };
        self.by_event.entry(event_id.to_owned()).or_default().push(record);
        while self.order.len() > MAX_EVENTS {
            let oldest = self.order.pop_front().unwrap_or_default();
            for record in self.by_event.remove(&oldest).unwrap_or_default() {
                self.event_of.remove(&record.message_id);
            }
        }
    }

    pub(crate) fn receive(&mut self, message_id: &str, now: u64) {
        if let Some(record) = self.record(message_id) {
            record.receives += 1;
            record.first_received_at.get_or_insert(now);
        }
    }

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
