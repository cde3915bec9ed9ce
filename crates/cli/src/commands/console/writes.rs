//! What the console can change with `--allow-writes`: it lists dead-letter messages, sends them again and deletes them.
//!
//! Invariant: an operation that has received messages runs to its end, which makes those visible again that stay in the
//! queue. It ends neither with the request of the browser nor with Ctrl-C, which only stops it from receiving more.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroU32;
use std::sync::Arc;

use daybook_console::stack::{DeadLetterAction, DeadLetterOutcome, DeadLetters};
use daybook_function_runtime::with_causes;
use daybook_local_aws::messaging::{QueueMessage, WaitingMessage};
use daybook_operations::dead_letters::{self, RedriveOptions};
use daybook_operations::messages::{DeadLetterMessage, MessageFilter, MessageOutcome};
use daybook_operations::{OperatorError, Stack};
use tokio::runtime::Handle;
use tokio::sync::RwLock;

const MAX_LISTED: usize = 100;

const RATE: NonZeroU32 = NonZeroU32::MIN.saturating_add(99);

#[derive(Clone)]
pub(super) struct Writes {
    pub(super) stack: Stack,
    pub(super) running: RunningCommands,
}

/// The operations that are running: each of them holds the lock for reading. Clones share the lock.
#[derive(Clone, Default)]
pub(super) struct RunningCommands(Arc<RwLock<()>>);

#[derive(Default)]
struct Outcomes(Vec<DeadLetterOutcome>);

impl Writes {
    /// Lists the messages of the queue after the action. Other readers see them again afterwards.
    pub(super) async fn handle(&self, action: DeadLetterAction) -> Result<DeadLetters, OperatorError> {
        let (this, running) = (self.clone(), self.running.clone());
        let handle = async move || {
            let outcomes = match action {
                // Without ids, all messages would be selected.
                DeadLetterAction::Redrive(ids) if !ids.is_empty() => this.redrive(ids).await,
                DeadLetterAction::Delete(ids) if !ids.is_empty() => this.delete(ids).await,
                // The page of a stack on AWS has no button for all messages.
                _ => Vec::new(),
            };
            Ok::<_, OperatorError>(DeadLetters { messages: this.read().await?, outcomes })
        };
        running.run_to_end(handle).await
    }

    async fn redrive(&self, ids: Vec<String>) -> Vec<DeadLetterOutcome> {
        let mut outcomes = Outcomes::default();
        let options = RedriveOptions { filter: of_ids(&ids), yes: true, rate: RATE, limit: None };
        let report = |message: &DeadLetterMessage, outcome: &MessageOutcome| outcomes.add(message, outcome);
        let redriven = dead_letters::redrive(&self.stack, &options, report).await;
        outcomes.of_all(ids, redriven.and_then(|(_, failure)| failure.map_or(Ok(()), Err)))
    }

    async fn delete(&self, ids: Vec<String>) -> Vec<DeadLetterOutcome> {
        let mut outcomes = Outcomes::default();
        let report = |message: &DeadLetterMessage, outcome: &MessageOutcome| outcomes.add(message, outcome);
        let deleted = dead_letters::delete(&self.stack, &of_ids(&ids), true, report).await;
        outcomes.of_all(ids, deleted.map(drop))
    }

    async fn read(&self) -> Result<Vec<WaitingMessage>, OperatorError> {
        let url = self.stack.required("DLQ_URL")?;
        let (all, mut messages) = (MessageFilter::default(), Vec::new());
        let read = dead_letters::read(&self.stack, &all, Some(MAX_LISTED), |message| {
            let digest = message.digest;
            messages.push(WaitingMessage {
                message: QueueMessage {
                    message_id: digest.sqs_id.clone(),
                    queue_url: url.clone(),
                    body: message.body().to_owned(),
                    attributes: BTreeMap::new(),
                },
                sent_at: digest.queued_at.map_or(0, |at| at.as_millisecond().cast_unsigned()),
                receives: message.receives(),
            });
            Ok(())
        });
        read.await?;
        Ok(messages)
    }
}

impl Outcomes {
    fn add(&mut self, message: &DeadLetterMessage, outcome: &MessageOutcome) -> io::Result<()> {
        let (id, reason) = (message.sqs_id.clone(), outcome.reason().map(str::to_owned));
        self.0.push(DeadLetterOutcome { id, outcome: outcome.name().to_owned(), reason });
        Ok(())
    }

    fn of_all(self, ids: Vec<String>, ended: Result<(), OperatorError>) -> Vec<DeadLetterOutcome> {
        let Self(mut outcomes) = self;
        let reason = match ended {
            Err(error) => with_causes(&error),
            Ok(()) => "no longer in the queue, or another reader has received it".to_owned(),
        };
        let is_unknown = |id: &String| !outcomes.iter().any(|outcome| outcome.id == *id);
        let others: Vec<_> = ids.into_iter().filter(is_unknown).collect();
        let unchanged = |id| DeadLetterOutcome { id, outcome: "unchanged".to_owned(), reason: Some(reason.clone()) };
        outcomes.extend(others.into_iter().map(unchanged));
        outcomes
    }
}

fn of_ids(ids: &[String]) -> MessageFilter {
    MessageFilter { ids: ids.to_vec(), ..MessageFilter::default() }
}

impl RunningCommands {
    /// Runs a command on a thread of its own, which goes on when the browser closes the connection.
    async fn run_to_end<T, F>(self, command: F) -> Result<T, OperatorError>
    where
        T: Send + 'static,
        F: AsyncFnOnce() -> Result<T, OperatorError> + Send + 'static,
    {
        let running = self.0.read_owned().await;
        let ended = tokio::task::spawn_blocking(move || {
            let _running = running;
            Handle::current().block_on(command())
        });
        let panicked = |error| {
            OperatorError::Failed(format!(
                "the command panicked: {error}; this is a bug. Load the page again to see which messages it has handled"
            ))
        };
        ended.await.unwrap_or_else(|error| Err(panicked(error)))
    }

    /// Waits until no command runs. No other command begins afterwards: the process ends, so the lock is not released.
    pub(super) async fn wait_for_end(self) {
        std::mem::forget(self.0.write_owned().await);
    }
}
