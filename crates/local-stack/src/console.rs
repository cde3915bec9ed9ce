//! What the pages of the console get from the stack: endpoints that `functions/code.rs` calls.

use std::num::NonZeroU32;
use std::time::Duration;

use axum::routing::post;
use axum::{Json, Router};
use daybook_console::stack::{
    ControlAction, Controls, DeadLetterAction, DeadLetterOutcome, DeadLetters, IDLE_PATIENCE, Notices, QueueDepth,
    QueuePurpose, StreamState, contains_faults,
};
use daybook_local_aws::messaging::WaitingMessage;
use daybook_stream_relay::{DeadLetter, Resend, ResendOutcome, clients};

use crate::endpoints::StackParts;

const REDRIVE_RATE: NonZeroU32 = NonZeroU32::MIN.saturating_add(999);

/// The time after which sending ends when the bus accepts nothing.
const REDRIVE_PATIENCE: Duration = Duration::from_secs(5);

pub(crate) fn router(parts: &StackParts) -> Router {
    let [for_messages, for_stream, for_controls, for_dead_letters] = [(); 4].map(|()| parts.clone());
    Router::new()
        .route("/_dev/console/messages", post(async move |Json(query)| Json(for_messages.bus.messages(&query))))
        .route("/_dev/console/stream", post(async move || Json(for_stream.stream())))
        .route("/_dev/console/controls", post(async move |Json(action)| Json(for_controls.control(action).await)))
        .route(
            "/_dev/console/dead-letters",
            post(async move |Json(action)| {
                // A task of its own finishes it, even if the caller hangs up.
                let handled = tokio::spawn(async move { for_dead_letters.handle_dead_letters(action).await });
                Json(handled.await.unwrap_or_default())
            }),
        )
}

impl StackParts {
    /// What the header [`Notices::HEADER`] contains.
    pub(crate) fn notices(&self) -> Notices {
        let ahead = self.clock.ahead();
        Notices {
            has_faults: contains_faults(&self.faults_as_set()),
            ahead_by: ahead.to_string(),
            ahead_by_seconds: ahead.seconds,
        }
    }

    fn stream(&self) -> StreamState {
        StreamState {
            mappings: self.mappings.all(),
            queues: self.queues(),
            rules: self.rules.all(),
            discarded: self.discarded.all(),
            traffic: self.functions.traffic.minutes(),
        }
    }

    fn queues(&self) -> Vec<QueueDepth> {
        let queue = |(queue, visible, hidden): (String, usize, usize)| QueueDepth {
            purpose: match queue.as_str() {
                name if name.ends_with("-dlq") => QueuePurpose::DeadLetters,
                name if name.ends_with("-changes") => QueuePurpose::Changes,
                name if name.ends_with("-reactions") => QueuePurpose::Reactions,
                _ => QueuePurpose::Rule,
            },
            queue,
            visible: visible as u64,
            hidden: hidden as u64,
        };
        self.bus.queue_counts().into_iter().map(queue).collect()
    }

    /// What waits, and where, except for dead-letter messages.
    fn waiting(&self) -> Vec<String> {
        let of_stream = self.mappings.all().into_iter();
        let of_stream =
            of_stream.map(|mapping| (mapping.function, mapping.shards.iter().map(|shard| shard.waiting as u64).sum()));
        let of_queues = self.queues().into_iter().filter(|queue| queue.purpose != QueuePurpose::DeadLetters);
        let of_queues = of_queues.map(|queue| (queue.queue, queue.visible + queue.hidden));
        let waiting = of_stream.chain(of_queues).filter(|(_, count): &(_, u64)| *count > 0);
        waiting.map(|(name, count)| format!("{count} at {name}")).collect()
    }

    async fn control(&self, action: ControlAction) -> Controls {
        let mut waiting = Vec::new();
        let rejected = match action {
            ControlAction::Nothing => None,
            ControlAction::SetFaults(faults) => self.set_faults(faults).err(),
            ControlAction::MoveClock(by) => self.move_clock(&by).await.err().map(|(_, reason)| reason),
            ControlAction::WaitUntilIdle => {
                if !self.is_idle_within(IDLE_PATIENCE, || self.waiting().is_empty()).await {
                    waiting = self.waiting();
                }
                None
            }
        };
        let faults = self.faults_as_set().as_object().cloned().unwrap_or_default();
        Controls { faults, notices: self.notices(), rejected, waiting }
    }

    async fn handle_dead_letters(&self, action: DeadLetterAction) -> DeadLetters {
        let waiting = self.bus.waiting_dead_letters().into_iter();
        let outcomes = match action {
            DeadLetterAction::Nothing => Vec::new(),
            DeadLetterAction::RedriveAll => self.redrive(waiting.collect()).await,
            DeadLetterAction::Redrive(ids) => {
                self.redrive(waiting.filter(|waiting| ids.contains(&waiting.message.message_id)).collect()).await
            }
            DeadLetterAction::Delete(ids) => {
                let selected = waiting.map(|waiting| waiting.message.message_id).filter(|id| ids.contains(id));
                let word = |id: &str| if self.bus.delete_message(id) { "deleted" } else { "not-deleted" };
                selected.map(|id| outcome(id.clone(), word(&id), None)).collect()
            }
        };
        DeadLetters { messages: self.bus.waiting_dead_letters(), outcomes }
    }

    /// Sends messages to the bus again, and deletes from the queue those that the bus accepted.
    async fn redrive(&self, selected: Vec<WaitingMessage>) -> Vec<DeadLetterOutcome> {
        let (mut rows, mut ids, mut outcomes) = (Vec::new(), Vec::new(), Vec::new());
        for WaitingMessage { message, .. } in selected {
            match DeadLetter::read(&message.body).ok().and_then(|dead_letter| dead_letter.message) {
                Some(row) => {
                    rows.push(row);
                    ids.push(message.message_id);
                }
                None => {
                    let reason = Some("it contains no message that can be sent".to_owned());
                    outcomes.push(outcome(message.message_id, "unsendable", reason));
                }
            }
        }
        let bus = clients::eventbridge(&self.eventbridge);
        let mut resend = Resend::new(bus, self.relay.clone(), REDRIVE_RATE).with_patience(REDRIVE_PATIENCE);
        for (id, sent) in ids.into_iter().zip(resend.send(rows, std::future::pending()).await) {
            let (word, reason) = match sent {
                ResendOutcome::Sent if self.bus.delete_message(&id) => ("sent", None),
                ResendOutcome::Sent => ("sent-not-deleted", None),
                ResendOutcome::Rejected(error) => ("rejected", Some(error.to_string())),
                ResendOutcome::Unsent(error) => ("unsent", error.map(|error| error.to_string())),
            };
            outcomes.push(outcome(id, word, reason));
        }
        outcomes
    }
}

fn outcome(id: String, outcome: &str, reason: Option<String>) -> DeadLetterOutcome {
    DeadLetterOutcome { id, outcome: outcome.to_owned(), reason }
}
