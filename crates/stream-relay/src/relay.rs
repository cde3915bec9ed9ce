//! An invocation: the calls that the lanes ask for, until everything is settled or the time is up.

use std::time::SystemTime;

use daybook_function_runtime::with_causes;
use daybook_stream_batch::{BatchResponse, SequenceNumber, StreamBatch};
use lambda_runtime::LambdaEvent;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::dead_letter;
use crate::faults::{Failure, Fault, judge};
use crate::lanes::{Lanes, Step, Verdict};
use crate::message::{EntryError, Message, gather};
use crate::settings::{Pace, RelaySettings};
use crate::signals::{self, Tally};

/// So often a letter is offered to the dead-letter queue.
const ATTEMPTS_TO_PARK: u32 = 3;

/// The relay of one function instance.
#[derive(Clone, Debug)]
pub struct Relay {
    bus: aws_sdk_eventbridge::Client,
    queue: aws_sdk_sqs::Client,
    settings: RelaySettings,
}

/// An invocation that fails whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RelayError {
    /// A record is unsettled and has no sequence number to report, so everything must come again.
    #[error("message {id} is unsettled, and its record has no sequence number")]
    NoSequenceNumber {
        /// The message, or the event id of its record.
        id: String,
    },
}

impl Relay {
    /// A relay over clients that do not try again themselves, such as those of [`clients`](crate::clients).
    pub fn new(bus: aws_sdk_eventbridge::Client, queue: aws_sdk_sqs::Client, settings: RelaySettings) -> Self {
        signals::describe();
        Self { bus, queue, settings }
    }

    /// [`handle`](Self::handle) as Lambda calls it.
    ///
    /// # Errors
    ///
    /// Those of `handle`.
    pub async fn invoke(&self, event: LambdaEvent<StreamBatch>) -> Result<BatchResponse, lambda_runtime::Error> {
        let left = event.context.deadline().duration_since(SystemTime::now()).unwrap_or_default();
        Ok(self.handle(event.payload, Instant::now() + left).await?)
    }

    /// Settles as much of a batch as the time until `deadline` allows. What is in flight when it is up counts as
    /// unsettled, though it may have arrived.
    ///
    /// # Errors
    ///
    /// When something is unsettled that cannot be reported.
    pub async fn handle(&self, batch: StreamBatch, deadline: Instant) -> Result<BatchResponse, RelayError> {
        let records = batch.records.len();
        let messages = gather(batch.records, &self.settings);
        let mut run = Run {
            relay: self,
            lanes: Lanes::new(messages.iter().map(Message::place)),
            messages,
            calls: JoinSet::new(),
            stopped: false,
            tally: Tally::default(),
        };
        run.until(deadline.checked_sub(self.settings.pace.margin).unwrap_or(deadline)).await;
        let answer = run.answer();
        let held: Vec<_> = run.lanes.unsettled().collect();
        run.tally.tell(records, &run.messages, &held);
        answer
    }
}

/// One invocation.
struct Run<'a> {
    relay: &'a Relay,
    messages: Vec<Message>,
    lanes: Lanes,
    calls: JoinSet<Done>,
    /// Whether the deployment is at fault, so that nothing more is sent.
    stopped: bool,
    tally: Tally,
}

/// A call that is back.
enum Done {
    Sent { request: Vec<usize>, results: Vec<Result<(), Failure>> },
    Parked { index: usize, outcome: Result<(), String> },
}

impl Run<'_> {
    async fn until(&mut self, cutoff: Instant) {
        while Instant::now() < cutoff {
            while !self.stopped
                && let Some(step) = self.lanes.next(Instant::now())
            {
                self.start(step);
            }
            let wake = self.lanes.wake().filter(|_| !self.stopped);
            if self.calls.is_empty() && wake.is_none_or(|wake| wake >= cutoff) {
                return;
            }
            tokio::select! {
                // What is back comes first, so that the same calls always lead to the same answer.
                biased;
                Some(done) = self.calls.join_next() => self.finish(done),
                () = sleep_until(wake.unwrap_or(cutoff).min(cutoff)) => {}
            }
        }
        while let Some(done) = self.calls.try_join_next() {
            self.finish(done);
        }
    }

    fn start(&mut self, step: Step) {
        match step {
            Step::Send(request) => {
                self.tally.calls += 1;
                self.tally.retried.extend(request.iter().filter(|&&index| self.lanes.attempts(index) > 1));
                let entries = request.iter().filter_map(|&index| self.messages[index].entry().cloned());
                let call = self.relay.bus.put_events().set_entries(Some(entries.collect())).send();
                self.calls.spawn(async move {
                    let results = judge(request.len(), call.await);
                    Done::Sent { request, results }
                });
            }
            Step::Park(index) => {
                let body = dead_letter::body(&self.messages[index], self.lanes.attempts(index));
                let queue = self.relay.queue.clone();
                let RelaySettings { dlq_url, pace, .. } = self.relay.settings.clone();
                self.calls.spawn(async move {
                    let outcome = match body {
                        Ok(body) => park(&queue, &dlq_url, &body, pace).await,
                        Err(error) => Err(error.to_string()),
                    };
                    Done::Parked { index, outcome }
                });
            }
        }
    }

    fn finish(&mut self, done: Result<Done, tokio::task::JoinError>) {
        match done {
            Ok(Done::Sent { request, results }) => self.sent(&request, results),
            Ok(Done::Parked { index, outcome }) => self.parked(index, outcome),
            // What it was about stays in flight, and so unsettled.
            Err(error) => tracing::error!(%error, "a call ended abnormally"),
        }
    }

    fn sent(&mut self, request: &[usize], results: Vec<Result<(), Failure>>) {
        // One wait for all that failed, so that they leave in one request again.
        let attempts = request.iter().map(|&index| self.lanes.attempts(index)).max().unwrap_or_default();
        let again = Verdict::Again(Instant::now() + self.relay.settings.pace.wait(attempts));

        let mut verdicts = Vec::with_capacity(request.len());
        for (&index, result) in request.iter().zip(results) {
            let Err(failure) = result else {
                self.messages[index].entry().into_iter().for_each(|entry| self.tally.sent(entry));
                verdicts.push((index, Verdict::Sent));
                continue;
            };
            if failure.fault == Fault::Deployment {
                self.stop(&failure.refusal);
            }
            let verdict = failure.verdict(&mut self.messages[index].unknown_failures, again);
            if verdict == Verdict::Refused {
                self.messages[index].refusal = Some(failure.refusal);
            } else {
                self.tally.last_failure = Some(failure.refusal);
            }
            verdicts.push((index, verdict));
        }
        self.lanes.answer(verdicts);
    }

    fn stop(&mut self, EntryError { code, text }: &EntryError) {
        if !self.stopped {
            tracing::error!(%code, %text, "the bus refuses this deployment, nothing more is sent");
        }
        self.stopped = true;
    }

    fn parked(&mut self, index: usize, outcome: Result<(), String>) {
        let message = &self.messages[index];
        let id = message.id();
        let (code, text) = EntryError::fields(message.refusal.as_ref());
        match &outcome {
            Ok(()) => {
                self.tally.parked += 1;
                tracing::warn!(id, code, text, "parked in the dead-letter queue");
            }
            Err(error) => {
                tracing::error!(id, code, text, error, "the dead-letter queue did not take this");
                self.tally.last_failure = Some(EntryError::new("NotParked", error));
            }
        }
        self.lanes.parked(index, outcome.is_ok());
    }

    /// The lowest sequence number of what is unsettled.
    fn answer(&self) -> Result<BatchResponse, RelayError> {
        let mut lowest: Option<&SequenceNumber> = None;
        for message in self.lanes.unsettled().map(|index| &self.messages[index]) {
            for record in &message.records {
                let Some(number) = &record.sequence_number else {
                    return Err(RelayError::NoSequenceNumber { id: message.id().to_owned() });
                };
                lowest = Some(lowest.map_or(number, |lowest| lowest.min(number)));
            }
        }
        Ok(lowest.cloned().map_or_else(BatchResponse::clean, BatchResponse::from_checkpoint))
    }
}

/// Offers a letter to the queue a few times. The failure is only for the log: whatever it is, the message stays where it
/// was.
async fn park(queue: &aws_sdk_sqs::Client, url: &str, body: &str, pace: Pace) -> Result<(), String> {
    let mut attempts = 1;
    loop {
        match queue.send_message().queue_url(url).message_body(body).send().await {
            Ok(_) => return Ok(()),
            Err(_) if attempts < ATTEMPTS_TO_PARK => sleep(pace.wait(attempts)).await,
            Err(error) => return Err(with_causes(&error)),
        }
        attempts += 1;
    }
}
