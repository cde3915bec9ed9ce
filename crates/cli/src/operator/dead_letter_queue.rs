//! The dead-letter queue.

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::error::SdkError;
use aws_sdk_sqs::types::{
    ChangeMessageVisibilityBatchRequestEntry, DeleteMessageBatchRequestEntry, QueueAttributeName,
};
use daybook_function_runtime::with_causes;

use super::dead_letter_message::DeadLetterMessage;
use super::error::OperatorError;
use super::interrupt::Interrupt;
use super::progress::ProgressLine;

/// Maximum messages per SQS call.
const BATCH_SIZE: usize = 10;

/// With a wait time, SQS queries all of its servers, so an empty response means that no message is visible.
const WAIT_SECONDS: i32 = 1;

/// How long messages that are only read stay hidden if the process ends before it puts them back.
pub(crate) const READ_VISIBILITY_TIMEOUT: Duration = Duration::from_secs(60);

/// The longest visibility time-out that SQS allows.
const MAX_VISIBILITY_TIMEOUT: Duration = Duration::from_secs(12 * 60 * 60);

/// The dead-letter queue.
pub struct DeadLetterQueue {
    client: Client,
    url: String,
}

/// SQS's approximate counts of the queue's messages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QueueCounts {
    pub(crate) visible: u64,
    /// Received by other readers, and not yet visible again.
    pub(crate) hidden: u64,
}

impl DeadLetterQueue {
    /// The queue with this URL.
    pub fn new(client: Client, url: String) -> Self {
        Self { client, url }
    }

    pub(crate) async fn counts(&self) -> Result<QueueCounts, OperatorError> {
        use QueueAttributeName::{ApproximateNumberOfMessages, ApproximateNumberOfMessagesNotVisible};
        let response = self
            .client
            .get_queue_attributes()
            .queue_url(&self.url)
            .set_attribute_names(Some(vec![ApproximateNumberOfMessages, ApproximateNumberOfMessagesNotVisible]))
            .send()
            .await
            .map_err(|error| call_failed("count the messages of the queue", error))?;
        let count = |name| response.attributes()?.get(&name)?.parse().ok();
        Ok(QueueCounts {
            visible: count(ApproximateNumberOfMessages).unwrap_or_default(),
            hidden: count(ApproximateNumberOfMessagesNotVisible).unwrap_or_default(),
        })
    }

    /// Receives a maximum of `limit` messages, until the queue returns no new message. Hides them from other readers for
    /// `visibility_timeout`.
    pub(crate) async fn receive(
        &self,
        limit: usize,
        visibility_timeout: Duration,
        interrupt: &Interrupt,
    ) -> Result<Vec<DeadLetterMessage>, OperatorError> {
        let progress = ProgressLine::spinner();
        let hidden_seconds = visibility_timeout.min(MAX_VISIBILITY_TIMEOUT).as_secs();
        // By SQS's id: a message may be received twice, and only its latest receipt handle is valid.
        let mut received: BTreeMap<String, DeadLetterMessage> = BTreeMap::new();
        while received.len() < limit && !interrupt.is_set() {
            let count = BATCH_SIZE.min(limit - received.len());
            let response = self
                .client
                .receive_message()
                .queue_url(&self.url)
                .max_number_of_messages(i32::try_from(count).unwrap_or(i32::MAX))
                .visibility_timeout(i32::try_from(hidden_seconds).unwrap_or(i32::MAX))
                .wait_time_seconds(WAIT_SECONDS)
                .send()
                .await;
            let response = match response {
                Ok(response) => response,
                Err(error) => {
                    self.put_back(&received.into_values().collect::<Vec<_>>()).await;
                    return Err(call_failed("receive messages from the queue", error));
                }
            };
            let before = received.len();
            let messages = response.messages.unwrap_or_default().into_iter().filter_map(DeadLetterMessage::new);
            received.extend(messages.map(|message| (message.sqs_id.clone(), message)));
            if received.len() == before {
                break;
            }
            progress.set_message(format!("{} dead-letter messages", received.len()));
        }
        Ok(received.into_values().collect())
    }

    /// Makes messages visible to other readers again. If that fails, they become visible when their time-out ends.
    pub(crate) async fn put_back(&self, messages: &[DeadLetterMessage]) {
        for batch in messages.chunks(BATCH_SIZE) {
            let entry = |(id, message): (usize, &DeadLetterMessage)| {
                ChangeMessageVisibilityBatchRequestEntry::builder()
                    .id(id.to_string())
                    .receipt_handle(&message.receipt_handle)
                    .visibility_timeout(0)
                    .build()
                    .expect("id and handle are set")
            };
            let call = self.client.change_message_visibility_batch().queue_url(&self.url);
            let entries = batch.iter().enumerate().map(entry).collect();
            if let Err(error) = call.set_entries(Some(entries)).send().await {
                tracing::warn!(
                    error = with_causes(&error),
                    "dead-letter messages stay hidden until their time-out ends"
                );
            }
        }
    }

    /// Deletes messages. Returns those that could not be deleted, each with the reason.
    pub(crate) async fn delete(&self, messages: &[DeadLetterMessage]) -> Vec<(DeadLetterMessage, String)> {
        let mut not_deleted = Vec::new();
        for batch in messages.chunks(BATCH_SIZE) {
            let entry = |(id, message): (usize, &DeadLetterMessage)| {
                DeleteMessageBatchRequestEntry::builder()
                    .id(id.to_string())
                    .receipt_handle(&message.receipt_handle)
                    .build()
                    .expect("id and handle are set")
            };
            let entries: Vec<_> = batch.iter().enumerate().map(entry).collect();
            let call = self.client.delete_message_batch().queue_url(&self.url).set_entries(Some(entries));
            match call.send().await {
                Ok(response) => not_deleted.extend(response.failed.into_iter().filter_map(|failed| {
                    let message = batch.get(failed.id.parse::<usize>().ok()?)?;
                    let text = failed.message.unwrap_or_default();
                    Some((message.clone(), format!("{}: {text}", failed.code)))
                })),
                Err(error) => {
                    let reason = with_causes(&error);
                    not_deleted.extend(batch.iter().map(|message| (message.clone(), reason.clone())));
                }
            }
        }
        not_deleted
    }
}

fn call_failed<E: Error + Send + Sync + 'static>(doing: &'static str, error: SdkError<E>) -> OperatorError {
    OperatorError::Queue { doing, cause: with_causes(&error) }
}
