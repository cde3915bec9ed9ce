//! Outbox rows that an operator sends again, and those in a batch of discarded records. None goes to the dead-letter queue: a
//! message that the bus does not accept stays where it was.

use std::collections::{BTreeMap, BTreeSet};
use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use daybook_stream_batch::StreamBatch;
use daybook_table::{AggregateKey, Clock, OutboxItem};

use crate::clients::{BusCheck, check_bus};
use crate::memory::Memory;
use crate::message::{EntryError, PendingMessage, Published, identity};
use crate::publisher::{Limits, Publisher};
use crate::record::{self, Content, OutboxRow};
use crate::settings::RelaySettings;

/// The time after which sending ends when the bus has returned nothing but failures.
const PATIENCE: Duration = Duration::from_secs(60);
const CHECK_LIMIT: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResendOutcome {
    Sent,
    /// It can never be sent in its current form.
    Rejected(EntryError),
    /// It was not sent, or the result is unknown: it can be sent later. Contains the last failure, if there was one.
    Unsent(Option<EntryError>),
}

/// A sender with a maximum rate.
#[derive(Debug)]
pub struct Resend {
    publisher: Publisher,
    limits: Limits,
}

impl Resend {
    /// A sender with a maximum of `per_second` messages a second, over a client that does not retry by itself, such as
    /// that of [`clients`](crate::clients).
    pub fn new(bus: aws_sdk_eventbridge::Client, settings: RelaySettings, per_second: NonZeroU32) -> Self {
        let (memory, clock) = (Memory::default(), Clock::default());
        let publisher = Publisher { bus, settings, dead_letter_queue: None, memory, clock };
        let limits = Limits { rate: Some(per_second), patience: Some(PATIENCE), ..Limits::default() };
        Self { publisher, limits }
    }

    /// Checks that the bus exists. A message to a bus that does not exist would count as sent.
    pub async fn check_bus(&self) -> BusCheck {
        check_bus(&self.publisher.bus, &self.publisher.settings.event_bus_name, CHECK_LIMIT).await
    }

    /// Sets the time after which sending ends when the bus has returned nothing but failures; a minute by default.
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.limits.patience = Some(patience);
        self
    }

    /// Sets the maximum of concurrent requests; by default those of the relay for one shard.
    pub fn with_concurrency(mut self, requests: NonZeroUsize) -> Self {
        self.limits.max_requests = Some(requests.get());
        self
    }

    /// Sends the rows, each aggregate's in order of `messageSeq`, and returns the outcome of each, in the order of
    /// `rows`. A row that the bus rejects permanently delays no other. Transient failures are retried. An error of the
    /// deployment, a bus that accepts nothing any more, or `stop` ends sending once the requests in flight have
    /// finished.
    pub async fn send(&mut self, rows: Vec<OutboxItem>, stop: impl Future<Output = ()>) -> Vec<ResendOutcome> {
        let mut unreadable = Vec::with_capacity(rows.len());
        let mut messages = Vec::with_capacity(rows.len());
        for row in rows {
            match OutboxRow::of(row) {
                Ok(row) => {
                    let mut message = PendingMessage::of_row(Box::new(row), &self.publisher.settings);
                    message.start_span();
                    messages.push(message);
                    unreadable.push(None);
                }
                Err(reason) => unreadable.push(Some(EntryError::new("UnreadableRow", reason))),
            }
        }
        let mut published = outcomes(self.publisher.publish(messages, &mut self.limits, stop).await);
        unreadable
            .into_iter()
            .filter_map(|error| error.map(ResendOutcome::Rejected).or_else(|| published.next()))
            .collect()
    }
}

fn outcomes(Published { messages, unsettled, .. }: Published) -> impl Iterator<Item = ResendOutcome> {
    messages.into_iter().enumerate().map(move |(index, message)| match message.permanent_error {
        _ if unsettled.contains(&index) => ResendOutcome::Unsent(message.last_error),
        Some(error) => ResendOutcome::Rejected(error),
        None => ResendOutcome::Sent,
    })
}

#[derive(Debug, Default)]
pub struct BatchRows {
    /// The new outbox rows, each once, in the order of their records.
    pub rows: Vec<OutboxItem>,
    /// Why records that may be new outbox rows cannot be read.
    pub unreadable: Vec<String>,
    /// The aggregates with new events, each with the number of the last one: for the projector, and for processes.
    pub changed: BTreeMap<AggregateKey, u64>,
}

impl BatchRows {
    pub fn of(batch: &StreamBatch) -> Self {
        let (mut this, mut known) = (Self::default(), BTreeSet::new());
        for raw in &batch.records {
            match record::read(raw).1 {
                Content::Outbox(row) => {
                    let item = row.item;
                    if known.insert(identity(&item)) {
                        this.rows.push(item);
                    }
                }
                Content::Changed(aggregate, last) => {
                    let known = this.changed.entry(aggregate).or_default();
                    *known = last.max(*known);
                }
                // The tick of the reactor finds deadlines.
                Content::Soon(_) | Content::SomethingElse => {}
                Content::Unreadable(unreadable) => this.unreadable.push(unreadable.reason),
            }
        }
        this
    }
}
