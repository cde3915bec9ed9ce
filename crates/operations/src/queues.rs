//! The dead-letter queue, and the queues of the projector and of the reactor.

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::error::SdkError;
use aws_sdk_sqs::operation::receive_message::ReceiveMessageError;
use aws_sdk_sqs::types::{
    ChangeMessageVisibilityBatchRequestEntry, DeleteMessageBatchRequestEntry, Message, MessageSystemAttributeName,
    QueueAttributeName,
};
use daybook_function_runtime::with_causes;
use daybook_table::{AggregateKey, ChangedAggregates};
use futures_util::{StreamExt, stream};

use crate::error::OperatorError;
use crate::messages::DeadLetterMessage;

pub const BATCH_SIZE: usize = 10;

/// With a wait time, SQS queries all of its servers, so that an empty response usually means that no message is visible.
const WAIT_SECONDS: i32 = 1;

const CONCURRENT_CALLS: usize = 4;

const MAX_VISIBILITY_TIMEOUT: Duration = Duration::from_secs(12 * 60 * 60);

#[derive(Debug)]
pub struct StackQueue {
    client: Client,
    url: String,
}

/// SQS's approximate counts of the queue's messages.
#[derive(Clone, Copy, Debug, Default)]
pub struct QueueCounts {
    pub visible: u64,
    /// Received by other readers, and not yet visible again.
    pub hidden: u64,
}

impl QueueCounts {
    pub fn total(self) -> u64 {
        self.visible + self.hidden
    }
}

impl StackQueue {
    pub fn new(client: Client, url: String) -> Self {
        Self { client, url }
    }

    pub fn name(&self) -> String {
        self.url.rsplit('/').next().unwrap_or_default().to_owned()
    }

    pub async fn counts(&self) -> Result<QueueCounts, OperatorError> {
        use QueueAttributeName::{ApproximateNumberOfMessages, ApproximateNumberOfMessagesNotVisible};
        let names = vec![ApproximateNumberOfMessages, ApproximateNumberOfMessagesNotVisible];
        let call = self.client.get_queue_attributes().queue_url(&self.url).set_attribute_names(Some(names));
        let response = call.send().await.map_err(|error| call_failed("count the messages of the queue", error))?;
        let count = |name| response.attributes()?.get(&name)?.parse().ok();
        Ok(QueueCounts {
            visible: count(ApproximateNumberOfMessages).unwrap_or_default(),
            hidden: count(ApproximateNumberOfMessagesNotVisible).unwrap_or_default(),
        })
    }

    /// Makes the function whose queue it is, the projector or the reactor, read the events of these aggregates up to these
    /// numbers. Returns the number of messages: one for a hundred aggregates.
    pub async fn send_changed(&self, aggregates: &BTreeMap<AggregateKey, u64>) -> Result<u64, OperatorError> {
        self.send(ChangedAggregates::messages(aggregates), Duration::ZERO).await
    }

    /// Makes the reactor hand the events of these aggregates, up to these numbers, to the processes of one type alone, after a
    /// delay.
    pub(crate) async fn send_input(
        &self,
        process: &str,
        aggregates: &BTreeMap<AggregateKey, u64>,
        delay: Duration,
    ) -> Result<(), OperatorError> {
        let mut messages = ChangedAggregates::messages(aggregates);
        messages.iter_mut().for_each(|message| message.process = Some(process.to_owned()));
        self.send(messages, delay).await.map(drop)
    }

    async fn send(&self, messages: Vec<ChangedAggregates>, delay: Duration) -> Result<u64, OperatorError> {
        for message in &messages {
            let call = self.client.send_message().queue_url(&self.url).message_body(message.to_body());
            let delay = i32::try_from(delay.as_secs()).ok().filter(|seconds| *seconds > 0);
            let sent = call.set_delay_seconds(delay).send().await;
            sent.map_err(|error| call_failed("send to the queue of changed aggregates", error))?;
        }
        Ok(messages.len() as u64)
    }

    /// Receives a maximum of `count` of the visible messages, with all of their attributes. Hides them from other readers for
    /// `visibility_timeout`. Returns `None` if the queue has as many received messages as SQS allows.
    pub async fn receive(
        &self,
        count: usize,
        visibility_timeout: Duration,
    ) -> Result<Option<Vec<Message>>, OperatorError> {
        let hidden_seconds = visibility_timeout.min(MAX_VISIBILITY_TIMEOUT).as_secs();
        let call = self.client.receive_message().queue_url(&self.url).wait_time_seconds(WAIT_SECONDS);
        let call = call.max_number_of_messages(i32::try_from(count).unwrap_or(i32::MAX));
        let call = call.visibility_timeout(i32::try_from(hidden_seconds).unwrap_or(i32::MAX));
        let call = call.message_system_attribute_names(MessageSystemAttributeName::All).message_attribute_names("All");
        match call.send().await {
            Ok(response) => Ok(Some(response.messages.unwrap_or_default())),
            Err(error) if error.as_service_error().is_some_and(ReceiveMessageError::is_over_limit) => Ok(None),
            Err(error) => Err(call_failed("receive messages from the queue", error)),
        }
    }

    /// Makes messages visible to other readers again. If that fails, they become visible when their time-out ends.
    pub async fn put_back(&self, messages: &[DeadLetterMessage]) {
        let put_back = async |batch: &[DeadLetterMessage]| {
            let entry = |(id, message): (usize, &DeadLetterMessage)| {
                let entry =
                    ChangeMessageVisibilityBatchRequestEntry::builder().id(id.to_string()).visibility_timeout(0);
                entry.receipt_handle(&message.receipt_handle).build().expect("id and handle are set")
            };
            let call = self.client.change_message_visibility_batch().queue_url(&self.url);
            let entries = batch.iter().enumerate().map(entry).collect();
            if let Err(error) = call.set_entries(Some(entries)).send().await {
                tracing::warn!(
                    error = with_causes(&error),
                    "dead-letter messages stay hidden until their time-out ends"
                );
            }
        };
        stream::iter(messages.chunks(BATCH_SIZE)).for_each_concurrent(CONCURRENT_CALLS, put_back).await;
    }

    /// Deletes messages. Returns those that could not be deleted, each with the reason.
    pub async fn delete(&self, messages: &[DeadLetterMessage]) -> Vec<(DeadLetterMessage, String)> {
        let mut not_deleted = Vec::new();
        for batch in messages.chunks(BATCH_SIZE) {
            let entry = |(id, message): (usize, &DeadLetterMessage)| {
                let entry = DeleteMessageBatchRequestEntry::builder().id(id.to_string());
                entry.receipt_handle(&message.receipt_handle).build().expect("id and handle are set")
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
