//! The event source mapping of a queue: receives its messages, and invokes a function with them, as Lambda does.

use std::sync::Arc;
use std::time::Duration;

use daybook_event_source_mapping::InvocationOutcome;
use daybook_local_aws::messaging::{Bus, ReceivedMessage};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::functions::Function;
use crate::rule_function::{RuleFunction, batch, unprocessed};

/// `BatchSize` of the mappings of the projector, the reactor, and the functions of rules that take batches.
const BATCH_SIZE: usize = 10;

/// The pause before the second attempt to process a message; each further pause is longer by the same time. The pauses
/// of SQS and Lambda are longer.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The time for which a message stays hidden beyond the timeout of the function.
const AFTER_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) struct QueueWorker {
    pub(crate) function: QueueFunction,
    pub(crate) queue: String,
    pub(crate) timeout: Duration,
    pub(crate) bus: Bus,
    pub(crate) stop: CancellationToken,
}

pub(crate) enum QueueFunction {
    OfStack(Function),
    OfRule(Arc<RuleFunction>),
}

impl QueueWorker {
    pub(crate) async fn run(self) {
        let batch_size = match &self.function {
            QueueFunction::OfRule(function) if !function.takes_batches => 1,
            QueueFunction::OfRule(_) | QueueFunction::OfStack(_) => BATCH_SIZE,
        };
        // A message stays hidden while the function may be processing it.
        let hidden = self.timeout + AFTER_TIMEOUT;
        loop {
            let received = tokio::select! {
                received = self.bus.receive(&self.queue, batch_size, hidden) => received,
                () = self.stop.cancelled() => return,
            };
            match received {
                Ok(messages) if messages.is_empty() => {}
                Ok(messages) => self.invoke(&messages).await,
                Err(error) => {
                    tracing::error!(queue = self.queue, error, "cannot receive from the queue");
                    sleep(RETRY_PAUSE).await;
                }
            }
        }
    }

    /// Invokes the function, deletes the messages that it has processed, and shows the others again after a pause.
    async fn invoke(&self, messages: &[ReceivedMessage]) {
        let failed = match &self.function {
            QueueFunction::OfStack(function) => self.process(function, messages).await,
            QueueFunction::OfRule(function) => function.process(&self.queue, messages).await,
        };
        if let Err(error) = &failed {
            tracing::error!(queue = self.queue, error, "the function of the queue failed");
        }
        for message in messages {
            if failed.as_ref().is_ok_and(|failed| !failed.contains(&message)) {
                self.bus.delete(&self.queue, message).await;
            } else {
                self.bus.hide(&self.queue, message, RETRY_PAUSE * message.receives);
            }
        }
    }

    async fn process<'a>(
        &self,
        function: &Function,
        messages: &'a [ReceivedMessage],
    ) -> Result<Vec<&'a ReceivedMessage>, String> {
        let event = batch(&self.queue, messages).to_string();
        match function.invoke(event, self.timeout, self.bus.kill_fault(function.name)).await {
            InvocationOutcome::Returned(response) => unprocessed(&response, messages),
            InvocationOutcome::FunctionError | InvocationOutcome::NotInvoked => {
                Err(format!("the {} failed", function.name))
            }
        }
    }
}
