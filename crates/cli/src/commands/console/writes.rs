//! What the console can change with `--allow-writes`: it lists dead-letter messages, sends them again and deletes them.
//!
//! Invariant: an operation that has received messages runs to its end, which makes those visible again that stay in the
//! queue. It ends neither with the request of the browser nor with Ctrl-C, which only stops it from receiving more.

#[cfg(test)]
mod tests;

use std::io;
use std::num::NonZeroU32;
use std::sync::Arc;

use axum::extract::State;
use axum::routing::{get, post};
use axum::{Json, Router};
use daybook_function_runtime::with_causes;
use daybook_operations::dead_letter_message::{DeadLetterMessage, MessageFilter};
use daybook_operations::dead_letters::{self, MessageOutcome, RedriveOptions};
use daybook_operations::{OperatorError, Stack};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::RwLock;

use super::interface::{JsonResponse, respond};

/// Maximum messages of a list.
const MAX_LISTED: usize = 100;

/// Maximum messages per second that are sent again.
const RATE: NonZeroU32 = NonZeroU32::MIN.saturating_add(99);

/// Runs the operations on the dead-letter queue of a stack.
pub(super) struct Writes {
    stack: Stack,
    running: RunningCommands,
}

/// The operations that are running: each of them holds the lock for reading. Clones share the lock.
#[derive(Clone, Default)]
pub(super) struct RunningCommands(Arc<RwLock<()>>);

/// Which messages.
#[derive(Deserialize)]
struct Selection {
    /// Their ids in the queue.
    ids: Vec<String>,
}

/// What became of each message.
#[derive(Default)]
struct Outcomes(Vec<Value>);

impl Writes {
    pub(super) fn new(stack: &Stack, running: RunningCommands) -> Self {
        Self { stack: stack.clone(), running }
    }

    /// The paths.
    pub(super) fn router(self) -> Router {
        Router::new()
            .route("/_dev/dlq/messages", get(list))
            .route("/_dev/dlq/redrive", post(redrive))
            .route("/_dev/dlq/delete", post(delete))
            .with_state(Arc::new(self))
    }

    /// The messages of the queue, which other readers see again afterwards.
    async fn list(&self) -> Result<Value, OperatorError> {
        let url = self.stack.dlq_url()?;
        let (all, mut messages) = (MessageFilter::default(), Vec::new());
        let read = dead_letters::read(&self.stack, &all, Some(MAX_LISTED), |message| {
            let digest = message.digest;
            messages.push(json!({
                "id": digest.sqs_id, "queueUrl": url, "body": message.body(), "receives": message.receives(),
                "sentAt": digest.queued_at.map_or(0, |at| at.as_millisecond()),
            }));
            Ok(())
        });
        read.await?;
        Ok(messages.into())
    }

    async fn redrive(&self, ids: Vec<String>) -> Value {
        let mut outcomes = Outcomes::default();
        let options = RedriveOptions { filter: of_ids(&ids), sends: true, rate: RATE, limit: None };
        let redriven =
            dead_letters::redrive(&self.stack, &options, |message, outcome| outcomes.add(message, outcome)).await;
        outcomes.of_all(ids, redriven.and_then(|redriven| redriven.failure.map_or(Ok(()), Err)))
    }

    async fn delete(&self, ids: Vec<String>) -> Value {
        let mut outcomes = Outcomes::default();
        let report = |message: &DeadLetterMessage, outcome: &MessageOutcome| outcomes.add(message, outcome);
        let deleted = dead_letters::delete(&self.stack, &of_ids(&ids), true, report).await;
        outcomes.of_all(ids, deleted.map(drop))
    }
}

impl Outcomes {
    fn add(&mut self, message: &DeadLetterMessage, outcome: &MessageOutcome) -> io::Result<()> {
        self.0.push(json!({"id": message.sqs_id, "outcome": outcome.name(), "reason": outcome.reason()}));
        Ok(())
    }

    /// The outcomes of the messages with these ids.
    fn of_all(self, ids: Vec<String>, ended: Result<(), OperatorError>) -> Value {
        let Self(mut outcomes) = self;
        let reason = match ended {
            Err(error) => with_causes(&error),
            Ok(()) => "no longer in the queue, or another reader has received it".to_owned(),
        };
        let is_unknown = |id: &String| !outcomes.iter().any(|outcome| outcome["id"] == id.as_str());
        let others: Vec<_> = ids.into_iter().filter(is_unknown).collect();
        outcomes.extend(others.iter().map(|id| json!({"id": id, "outcome": "unchanged", "reason": reason})));
        outcomes.into()
    }
}

async fn list(State(writes): State<Arc<Writes>>) -> JsonResponse {
    let running = writes.running.clone();
    respond(running.run_to_end(async move || writes.list().await).await)
}

async fn redrive(State(writes): State<Arc<Writes>>, Json(Selection { ids }): Json<Selection>) -> JsonResponse {
    // Without ids, all messages would be selected.
    if ids.is_empty() {
        return Ok(Json(json!([])));
    }
    let running = writes.running.clone();
    respond(running.run_to_end(async move || Ok(writes.redrive(ids).await)).await)
}

async fn delete(State(writes): State<Arc<Writes>>, Json(Selection { ids }): Json<Selection>) -> JsonResponse {
    if ids.is_empty() {
        return Ok(Json(json!([])));
    }
    let running = writes.running.clone();
    respond(running.run_to_end(async move || Ok(writes.delete(ids).await)).await)
}

fn of_ids(ids: &[String]) -> MessageFilter {
    MessageFilter { ids: ids.to_vec(), ..MessageFilter::default() }
}

impl RunningCommands {
    /// Runs a command on a thread of its own, which goes on when the browser closes the connection.
    async fn run_to_end<F>(self, command: F) -> Result<Value, OperatorError>
    where
        F: AsyncFnOnce() -> Result<Value, OperatorError> + Send + 'static,
    {
        let running = self.0.read_owned().await;
        let ended = tokio::task::spawn_blocking(move || {
            let _running = running;
            Handle::current().block_on(command())
        });
        ended.await.unwrap_or_else(|error| Err(OperatorError::Panicked(error.to_string())))
    }

    /// Waits until no command runs. No other command begins afterwards: the process ends, so the lock is not released.
    pub(super) async fn wait_for_end(self) {
        std::mem::forget(self.0.write_owned().await);
    }
}
