//! An invocation, with a batch of messages or a tick. The tick finds the deadlines that are due and sends them to the queue.

use std::time::Duration;

use daybook_decider::Registry;
use daybook_event_store::{EventStore, Page, StoredDeadline};
use daybook_function_runtime::{FailureCounter, QueueBatch, QueueResponse, with_causes};
use daybook_queue::Queue;
use daybook_table::{DeadlineState, DueDeadline, DueDeadlines};
use futures_util::{StreamExt, stream};
use jiff::Timestamp;
use metrics::{Unit, describe_counter, describe_histogram, histogram};
use serde::Deserialize;
use tokio::time::Instant;

/// The time that an invocation leaves for its response.
const MARGIN: Duration = Duration::from_secs(1);

/// How far a tick looks ahead: twice the time between two ticks, so that a tick may be late or missing. The relay sends
/// deadlines that are set so shortly before their time that a tick might miss them.
const AHEAD: Duration = Duration::from_mins(2);

/// Maximum deadlines that a tick sends, or fires itself, the oldest ones.
const MAX_DEADLINES: usize = 10_000;

/// The number of messages that wait in the queue from which on a tick sends none, and fires deadlines itself: as many as it sends
/// of deadlines that are overdue. Otherwise, they would wait behind all others, such as those of an import, and an outage would
/// fill the queue with repetitions of the same deadlines.
const MAX_WAITING: u64 = (MAX_DEADLINES / DueDeadlines::MAX) as u64;

const CONCURRENT_SENDS: usize = 8;
const SEND_ATTEMPTS: u32 = 3;

const ATTEMPTS_FAILED: &str = "ReactionAttemptsFailed";
pub(crate) const OLDEST_FAILED: &str = "OldestReactionFailed";

pub struct Reactor {
    pub(crate) registry: Registry,
    pub(crate) store: EventStore,
    pub(crate) queue: Queue,
    failures: FailureCounter,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum ReactorEvent {
    Messages(QueueBatch),
    /// `{"tick": true}`, each minute.
    Tick {
        tick: bool,
    },
}

impl Reactor {
    /// A reactor of these aggregates, with this queue in front of it.
    pub fn new(registry: Registry, store: EventStore, queue: Queue) -> Self {
        for name in [
            "DeadlinesFired",
            "DeadlinesWithoutEffect",
            "CommandsDispatched",
            "EventsHandled",
            "ReactionsGivenUp",
            ATTEMPTS_FAILED,
        ] {
            describe_counter!(name, Unit::Count, "");
        }
        describe_histogram!("OldestDeadline", Unit::Seconds, "");
        describe_histogram!(OLDEST_FAILED, Unit::Seconds, "");
        Self { registry, store, queue, failures: FailureCounter::new(ATTEMPTS_FAILED) }
    }

    /// Also counts failures under this version of the function, by which a deployment is rolled back.
    pub fn with_function_version(mut self, version: Option<String>) -> Self {
        self.failures.set_version(version);
        self
    }

    /// Counts an attempt of any kind that failed, also one that is made again.
    pub(crate) fn count_failed(&self) {
        self.failures.count(ATTEMPTS_FAILED);
    }

    /// Does as much as the time until `deadline` allows. Returns the messages that the queue must deliver again.
    pub async fn handle(&self, event: ReactorEvent, deadline: Instant) -> QueueResponse {
        let cutoff = deadline.checked_sub(MARGIN).unwrap_or(deadline);
        match event {
            ReactorEvent::Messages(batch) => self.react(batch, cutoff).await,
            ReactorEvent::Tick { tick } => {
                if tick {
                    self.tick(cutoff).await;
                }
                QueueResponse::default()
            }
        }
    }

    /// Sends the deadlines that are due, or soon will be, to the queue. If too many messages wait there, it fires those that are due
    /// itself, the oldest first. The next tick does what fails, or has to wait.
    async fn tick(&self, cutoff: Instant) {
        if let Err(error) = self.find_and_send(cutoff).await {
            self.count_failed();
            tracing::error!(error, "the tick failed");
        }
    }

    async fn find_and_send(&self, cutoff: Instant) -> Result<(), String> {
        let waiting = self.queue.waiting().await.map_err(|error| format!("cannot read the queue: {error}"))?;
        let is_full = waiting >= MAX_WAITING;
        let now = self.store.now();
        let until = if is_full { now } else { now + AHEAD };
        let found = self.store.deadlines(DeadlineState::Pending, until, MAX_DEADLINES).await;
        let Page { items: deadlines, unreadable, more, .. } = found.map_err(|error| with_causes(&error))?;
        for row in unreadable {
            tracing::error!(%row, reason = %row.reason, "the row of a deadline cannot be read");
        }
        let due = |StoredDeadline { aggregate: key, due, item, .. }: StoredDeadline| {
            let name = item.name().to_owned();
            DueDeadline { due, key, name }
        };
        let due: Vec<_> = deadlines.into_iter().map(due).collect();
        let overdue = due.first().map_or(Duration::ZERO, |oldest| overdue(oldest, now));
        // Also without such a deadline: an alarm notices if there is no value.
        histogram!("OldestDeadline").record(overdue.as_secs_f64());
        if is_full {
            let (deadlines, overdue) = (due.len(), overdue.as_secs());
            tracing::info!(deadlines, more, overdue, waiting, "the tick fires deadlines itself");
            self.fire_all(due, cutoff).await;
            return Ok(());
        }
        let messages: Vec<_> = DueDeadlines::of_messages(&due, now)
            .map(|(delay, of_message)| (delay, DueDeadlines::new(of_message).to_body()))
            .collect();
        let sends = stream::iter(messages).map(|(delay, body)| async move {
            self.queue.send_delayed(&body, delay, SEND_ATTEMPTS, Some(cutoff)).await
        });
        let sent: Vec<_> = sends.buffered(CONCURRENT_SENDS).collect().await;
        let messages = sent.len();
        tracing::info!(deadlines = due.len(), more, messages, overdue = overdue.as_secs(), waiting, "tick");
        sent.into_iter().collect()
    }
}

fn overdue(deadline: &DueDeadline, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(deadline.due)).unwrap_or_default()
}
