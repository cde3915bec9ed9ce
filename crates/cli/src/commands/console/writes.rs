//! What the console can change with `--allow-writes`: it lists dead-letter messages, sends them again and deletes them,
//! with the code of `daybook dlq`.
//!
//! Invariant: a command that has received messages runs to its end, which makes those visible again that stay in the
//! queue. It ends neither with the request of the browser nor with Ctrl-C, which only stops it from receiving more.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};

use aws_sdk_sqs::types::MessageSystemAttributeName;
use daybook_console::stack::{DeadLetterOutcome, QueuedDeadLetter};
use daybook_decider::Registry;
use daybook_function_runtime::with_causes;
use daybook_projection::{ProjectionRegistrationError, Projections};
use daybook_settings::Environment;
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::RwLock;

use super::args::ConsoleArgs;
use crate::commands::dlq::{DlqCommand, DlqDeleteArgs, DlqRedriveArgs};
use crate::operator::dead_letter_message::MessageFilterArgs;
use crate::operator::queue_reading::QueueReader;
use crate::operator::target::StackArgs;
use crate::operator::{Interrupt, OperatorContext, OperatorError};

/// Maximum messages of a list.
const MAX_LISTED: usize = 100;

/// Maximum messages per second that are sent again.
const RATE: NonZeroU32 = NonZeroU32::MIN.saturating_add(99);

/// Runs the commands of `daybook dlq` in the environment of the console.
pub(super) struct Writes {
    stack: StackArgs,
    environment: Environment,
    registry: Registry,
    projections: fn() -> Result<Projections, ProjectionRegistrationError>,
    interrupt: Interrupt,
    running: RunningCommands,
}

/// The commands that are running: each of them holds the lock for reading. Clones share the lock.
#[derive(Clone, Default)]
pub(super) struct RunningCommands(Arc<RwLock<()>>);

impl Writes {
    pub(super) fn new(args: &ConsoleArgs, context: &OperatorContext, running: RunningCommands) -> Self {
        Self {
            stack: args.stack.clone(),
            environment: context.environment.clone(),
            registry: context.registry.clone(),
            projections: context.projections,
            interrupt: context.interrupt.clone(),
            running,
        }
    }

    /// The messages of the queue, which other readers see again afterwards.
    pub(super) async fn list(self: Arc<Self>) -> Result<Vec<QueuedDeadLetter>, OperatorError> {
        let running = self.running.clone();
        running.run_to_end(async move || self.read().await).await
    }

    pub(super) async fn redrive(self: Arc<Self>, ids: Vec<String>) -> Result<Vec<DeadLetterOutcome>, OperatorError> {
        let (filter, stack) = (of_ids(&ids), self.stack.clone());
        let args = DlqRedriveArgs { filter, yes: true, rate: RATE, limit: None, json: true, stack };
        self.act(DlqCommand::Redrive(args), ids).await
    }

    pub(super) async fn delete(self: Arc<Self>, ids: Vec<String>) -> Result<Vec<DeadLetterOutcome>, OperatorError> {
        let (filter, stack) = (of_ids(&ids), self.stack.clone());
        let args = DlqDeleteArgs { ids: Vec::new(), filter, yes: true, json: true, stack };
        self.act(DlqCommand::Delete(args), ids).await
    }

    async fn act(
        self: Arc<Self>,
        command: DlqCommand,
        ids: Vec<String>,
    ) -> Result<Vec<DeadLetterOutcome>, OperatorError> {
        // Without ids, the command would select all messages.
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let running = self.running.clone();
        running.run_to_end(async move || Ok(self.run(command, ids).await)).await
    }

    async fn read(&self) -> Result<Vec<QueuedDeadLetter>, OperatorError> {
        let url = self.stack.dlq_url(&self.environment)?;
        let queue = self.stack.dead_letters(&self.environment).await?;
        let mut messages = Vec::new();
        let reader = QueueReader::new(&queue, Some(MAX_LISTED), &self.interrupt);
        let read = reader.read(|digest, message| {
            let attribute = |name| message.attributes.as_ref().and_then(|attributes| attributes.get(&name));
            let receives = attribute(MessageSystemAttributeName::ApproximateReceiveCount);
            messages.push(QueuedDeadLetter {
                id: digest.sqs_id.clone(),
                queue_url: url.clone(),
                sent_at: digest.queued_at.map_or(0, |at| at.as_millisecond()),
                receives: receives.and_then(|count| count.parse().ok()).unwrap_or_default(),
                body: message.body.clone().unwrap_or_default(),
            });
            Ok(())
        });
        let reading = read.await?;
        queue.put_back(&reading.messages).await;
        Ok(messages)
    }

    /// Runs a command on the messages with these ids. Returns what became of each.
    async fn run(&self, command: DlqCommand, ids: Vec<String>) -> Vec<DeadLetterOutcome> {
        let output = Captured::default();
        let mut context = OperatorContext {
            environment: self.environment.clone(),
            registry: self.registry.clone(),
            projections: self.projections,
            out: Box::new(output.clone()),
            interrupt: self.interrupt.clone(),
        };
        let ended = command.run(&mut context).await;
        let mut outcomes = output.outcomes();
        let reason = match ended {
            Err(error) => with_causes(&error),
            Ok(_) => "no longer in the queue, or another reader has received it".to_owned(),
        };
        let known: BTreeSet<_> = outcomes.iter().map(|outcome| outcome.id.clone()).collect();
        let others = ids.into_iter().filter(|id| !known.contains(id));
        let unchanged = |id| DeadLetterOutcome { id, outcome: "unchanged".to_owned(), reason: Some(reason.clone()) };
        outcomes.extend(others.map(unchanged));
        outcomes
    }
}

fn of_ids(ids: &[String]) -> MessageFilterArgs {
    MessageFilterArgs { id: ids.to_vec(), ..MessageFilterArgs::default() }
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
        ended.await.unwrap_or_else(|error| Err(OperatorError::Panicked(error.to_string())))
    }

    /// Waits until no command runs. No other command begins afterwards: the process ends, so the lock is not released.
    pub(super) async fn wait_for_end(self) {
        std::mem::forget(self.0.write_owned().await);
    }
}

/// The output of a command.
#[derive(Clone, Default)]
struct Captured(Arc<Mutex<Vec<u8>>>);

impl Captured {
    /// The lines about messages, as the console reads them.
    fn outcomes(&self) -> Vec<DeadLetterOutcome> {
        let output = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = output.split(|&byte| byte == b'\n').filter_map(|line| serde_json::from_slice::<Value>(line).ok());
        let text = |line: &Value, name: &str| line[name].as_str().map(str::to_owned);
        let outcome = |line: Value| {
            let (id, outcome) = text(&line, "id").zip(text(&line, "outcome"))?;
            Some(DeadLetterOutcome { id, outcome, reason: text(&line, "why") })
        };
        lines.filter_map(outcome).collect()
    }
}

impl Write for Captured {
    fn write(&mut self, some: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(some);
        Ok(some.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn end_of_a_command_is_awaited_although_nobody_waits_for_its_result() {
        let running = RunningCommands::default();
        let (begun, has_begun) = tokio::sync::oneshot::channel();
        let done = Arc::new(Mutex::new(false));
        let command = {
            let done = done.clone();
            running.clone().run_to_end(async move || {
                begun.send(()).unwrap();
                tokio::time::sleep(Duration::from_millis(200)).await;
                *done.lock().unwrap() = true;
                Ok(())
            })
        };
        tokio::select! {
            _ = command => panic!("the browser did not hang up"),
            begun = has_begun => begun.unwrap(),
        }
        running.wait_for_end().await;
        assert!(*done.lock().unwrap());
    }

    #[tokio::test]
    async fn command_that_waits_for_the_end_of_the_others_does_not_begin() {
        let running = RunningCommands::default();
        let first = running.0.clone().read_owned().await;
        let end = tokio::spawn(running.clone().wait_for_end());
        while running.0.try_read().is_ok() {
            tokio::task::yield_now().await;
        }
        let late = tokio::spawn(running.run_to_end(async || Ok(())));
        tokio::task::yield_now().await;
        drop(first);
        end.await.unwrap();
        tokio::time::timeout(Duration::from_millis(100), late).await.unwrap_err();
    }

    #[tokio::test]
    async fn panic_of_a_command_is_no_error_of_its_options() {
        let running = RunningCommands::default();
        let ended = running.clone().run_to_end(async || -> Result<(), OperatorError> { panic!("no messages") }).await;
        let error = ended.unwrap_err();
        assert!(matches!(error, OperatorError::Panicked(_)) && error.exit_code() == 3, "{error}");
        assert!(error.to_string().contains("no messages"), "{error}");
        running.wait_for_end().await;
    }
}
