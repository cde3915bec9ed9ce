//! An invocation, with a batch of messages or a tick.

use std::time::Duration;

use daybook_decider::Registry;
use daybook_event_store::EventStore;
use daybook_function_runtime::{FailureCounter, QueueBatch, QueueResponse};
use daybook_queue::Queue;
use metrics::{Unit, describe_counter, describe_histogram};
use serde::Deserialize;
use tokio::time::Instant;

/// The time that an invocation leaves for its response.
const MARGIN: Duration = Duration::from_secs(1);

const ATTEMPTS_FAILED: &str = "ReactionAttemptsFailed";

pub struct Reactor {
    pub(crate) registry: Registry,
    pub(crate) store: EventStore,
    pub(crate) queue: Queue,
    pub(crate) failures: FailureCounter,
}

/// What the reactor is invoked with.
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
        Self { registry, store, queue, failures: FailureCounter::new(ATTEMPTS_FAILED) }
    }

    /// Also counts failures under this version of the function, by which a deployment is rolled back.
    #[must_use]
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
}
