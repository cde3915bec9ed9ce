//! The event source mapping of a queue: invokes the projector with its messages, as Lambda does.

use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{DeleteMessageBatchRequestEntry, Message};
use daybook_event_source_mapping::InvocationOutcome;
use daybook_function_runtime::with_causes;
use daybook_local_aws::messaging::Bus;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::functions::Function;
use crate::termination::StopSignal;

/// `BatchSize` of the mapping.
const BATCH_SIZE: i32 = 10;

/// The pause after a failure of the queue.
const PAUSE: Duration = Duration::from_secs(1);

/// A mapping of a queue to the projector.
pub(crate) struct QueueWorker {
    pub(crate) projector: Function,
    pub(crate) timeout: Duration,
    pub(crate) sqs: Client,
    pub(crate) url: String,
    /// Where the faults of invocations are.
    pub(crate) bus: Bus,
    pub(crate) stop: StopSignal,
}

impl QueueWorker {
    /// Invokes the function with the messages of the queue, until the stack stops.
    pub(crate) async fn run(self) {
        loop {
            let received = tokio::select! {
                received = self.receive() => received,
                () = self.stop.wait() => return,
            };
            match received {
                Ok(messages) if messages.is_empty() => {}
                Ok(messages) => self.invoke(messages).await,
                Err(error) => {
                    tracing::error!(queue = self.url, error, "cannot receive from the queue");
                    sleep(PAUSE).await;
                }
            }
        }
    }

    async fn receive(&self) -> Result<Vec<Message>, String> {
        let hidden = i32::try_from(self.timeout.as_secs()).unwrap_or(i32::MAX);
        let receive = self.sqs.receive_message().queue_url(&self.url).max_number_of_messages(BATCH_SIZE);
        let received = receive.wait_time_seconds(20).visibility_timeout(hidden).send().await;
        Ok(received.map_err(|error| with_causes(&error))?.messages.unwrap_or_default())
    }

    /// Invokes the function, and deletes the messages that it does not report.
    async fn invoke(&self, messages: Vec<Message>) {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let record = |message: &Message| json!({"messageId": text(&message.message_id), "body": text(&message.body)});
        let event = json!({"Records": messages.iter().map(record).collect::<Vec<_>>()}).to_string();
        let killed_after = self.bus.projector_fault().unwrap_or(self.timeout);
        let InvocationOutcome::Returned(response) =
            self.projector.invoke_until(event, self.timeout, killed_after).await
        else {
            // The messages become visible again.
            return;
        };
        let response: Value = serde_json::from_str(&response).unwrap_or_default();
        let failures = response["batchItemFailures"].as_array().map(Vec::as_slice).unwrap_or_default();
        let failed = |message: &&Message| {
            failures.iter().any(|failure| failure["itemIdentifier"].as_str() == message.message_id.as_deref())
        };
        let entries = messages.iter().filter(|message| !failed(message)).enumerate().map(|(index, message)| {
            let entry = DeleteMessageBatchRequestEntry::builder().id(index.to_string());
            entry.receipt_handle(text(&message.receipt_handle)).build().expect("id and handle are set")
        });
        let entries: Vec<_> = entries.collect();
        if entries.is_empty() {
            return;
        }
        let deleted = self.sqs.delete_message_batch().queue_url(&self.url).set_entries(Some(entries)).send().await;
        if let Err(error) = deleted {
            // They become visible again, and are projected again without effect.
            tracing::warn!(queue = self.url, error = with_causes(&error), "messages were not deleted");
        }
    }
}
