//! An invocation: a batch of stream records, published until its deadline.

use std::future::pending;

use daybook_function_runtime::FailureCounter;
use daybook_queue::{Queue, SqsClient};
use daybook_stream_batch::{BatchResponse, SequenceNumber, StreamBatch};
use daybook_table::Clock;
use tokio::time::Instant;
use tracing::Instrument;

use crate::hints::{self, SentHints};
use crate::memory::Memory;
use crate::message::{Gathered, Published, gather};
use crate::publisher::{Limits, Publisher};
use crate::settings::RelaySettings;
use crate::{signals, spans};

/// The relay of one function instance. A clone is the same relay: it shares the memory of earlier invocations.
#[derive(Clone, Debug)]
pub struct Relay {
    publisher: Publisher,
    changes_queues: Vec<Queue>,
    reactions_queue: Option<Queue>,
    failures: FailureCounter,
}

/// An error that fails the whole invocation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RelayError {
    /// A record is unsettled and has no sequence number to report, so the whole batch must be retried.
    #[error("message {id} is unsettled, and its record has no sequence number")]
    NoSequenceNumber { id: String },
}

impl Relay {
    /// A relay over clients that do not retry by themselves, such as those of [`clients`](crate::clients).
    pub fn new(bus: aws_sdk_eventbridge::Client, queue: SqsClient, settings: RelaySettings) -> Self {
        signals::describe();
        let (url, waits) = (settings.dlq_url.clone(), settings.retry.waits);
        let dead_letter_queue = Some(Queue { client: queue, url, waits });
        let (memory, clock) = (Memory::default(), Clock::default());
        // The function has just checked the bus.
        memory.lock().bus_checked = Some(Instant::now());
        let publisher = Publisher { bus, settings, dead_letter_queue, memory, clock };
        Self {
            publisher,
            changes_queues: Vec::new(),
            reactions_queue: None,
            failures: FailureCounter::new("MessagesFailed"),
        }
    }

    /// The relay of a function that could not check its bus at its start: the first batch checks it.
    pub fn with_unchecked_bus(self) -> Self {
        self.publisher.memory.lock().bus_checked = None;
        self
    }

    /// The relay that also sends the keys of aggregates with new events to this queue: the changes queue, or that of a reactor
    /// with processes.
    pub fn with_changes_queue(mut self, client: SqsClient, url: String) -> Self {
        self.changes_queues.push(Queue { client, url, waits: self.publisher.settings.retry.waits });
        self
    }

    /// The relay that also sends deadlines that are due soon to the reactions queue, which has this URL.
    pub fn with_reactions_queue(self, client: SqsClient, url: String) -> Self {
        let reactions_queue = Some(Queue { client, url, waits: self.publisher.settings.retry.waits });
        Self { reactions_queue, ..self }
    }

    /// Counts failures also under the version of the function that runs it, so that an alarm on this version can roll back
    /// its deployment.
    pub fn with_function_version(mut self, version: Option<String>) -> Self {
        self.failures.set_version(version);
        self
    }

    /// Replaces the system's clock, which decides on the age of messages, for a stack with a time of its own.
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.publisher.clock = clock;
        self
    }

    /// Settles as much of a batch as the time until `deadline` allows. Messages in flight at that time count as
    /// unsettled, although they may have arrived.
    pub async fn handle(&self, batch: StreamBatch, deadline: Instant) -> Result<BatchResponse, RelayError> {
        let records = batch.records.len();
        let settings = &self.publisher.settings;
        let memory = &self.publisher.memory;
        let gathered = gather(batch.records, settings, |record| memory.is_settled(record));
        let Gathered { mut messages, changed, soon } = gathered;
        for message in &mut messages {
            memory.recall(message);
            message.start_span();
        }
        let cutoff = deadline.checked_sub(settings.retry.margin).unwrap_or(deadline);
        let mut limits = Limits { cutoff: Some(cutoff), ..Limits::default() };
        let send_changes = async {
            match &*self.changes_queues {
                [] => SentHints::default(),
                queues => hints::send_changes(queues, changed, cutoff).await,
            }
        };
        let send_deadlines = async {
            match &self.reactions_queue {
                Some(queue) if !soon.is_empty() => {
                    hints::send_deadlines(queue, soon, &self.publisher.clock, cutoff).await
                }
                _ => SentHints::default(),
            }
        };
        let span = spans::batch(messages.iter().map(|message| &message.span));
        let check = self.publisher.check_bus(!messages.is_empty());
        let published = self.publisher.publish(messages, &mut limits, pending()).instrument(span);
        let (mut published, changes, deadlines, missing) = tokio::join!(published, send_changes, send_deadlines, check);
        let hints = [changes, deadlines];
        if let Some(missing) = missing {
            published.dropped(&missing);
        }
        signals::report(records, &published, &hints, &self.failures);
        let response = response(&published, &hints);
        memory.remember(published, hints);
        response
    }
}

/// The response with the lowest sequence number of the unsettled records.
fn response(published: &Published, hints: &[SentHints]) -> Result<BatchResponse, RelayError> {
    let messages = published.unsettled.iter().map(|&index| &published.messages[index]);
    let of_messages = messages.flat_map(|message| message.records.iter().map(|record| (record, message.id())));
    let of_hints = hints.iter().flat_map(|hints| &hints.unsettled);
    let of_hints = of_hints.map(|record| (record, record.event_id.as_deref().unwrap_or("?")));
    let mut lowest: Option<&SequenceNumber> = None;
    for (record, id) in of_messages.chain(of_hints) {
        let Some(number) = &record.sequence_number else {
            return Err(RelayError::NoSequenceNumber { id: id.to_owned() });
        };
        lowest = Some(lowest.map_or(number, |lowest| lowest.min(number)));
    }
    Ok(lowest.cloned().map_or_else(BatchResponse::clean, BatchResponse::from_checkpoint))
}
