//! The queue of the projector.

use aws_sdk_sqs::Client;
use daybook_function_runtime::with_causes;
use daybook_table::{AggregateKey, ChangedAggregates};

use super::dead_letter_queue::{QueueCounts, queue_counts};
use super::error::OperatorError;

/// Maximum aggregates of one message. With ids of the maximum length, it has some 30 KB; SQS charges 64 KB as one request.
pub(crate) const MAX_AGGREGATES: usize = 100;

/// The queue of the projector.
#[derive(Debug)]
pub(crate) struct ChangesQueue {
    client: Client,
    url: String,
}

impl ChangesQueue {
    /// The queue with this URL.
    pub(crate) fn new(client: Client, url: String) -> Self {
        Self { client, url }
    }

    /// Makes the projector project these aggregates. Returns the number of messages: one for a hundred aggregates.
    ///
    /// # Errors
    ///
    /// When the queue does not accept a message.
    pub(crate) async fn send(&self, aggregates: &[AggregateKey]) -> Result<u64, OperatorError> {
        let mut messages = 0;
        for aggregates in aggregates.chunks(MAX_AGGREGATES) {
            let changed: ChangedAggregates = aggregates.iter().cloned().collect();
            let body = serde_json::to_string(&changed).expect("texts have a JSON form");
            let sent = self.client.send_message().queue_url(&self.url).message_body(body).send().await;
            sent.map_err(|error| OperatorError::Queue {
                doing: "send to the projector's queue",
                cause: with_causes(&error),
            })?;
            messages += 1;
        }
        Ok(messages)
    }

    /// The number of messages.
    ///
    /// # Errors
    ///
    /// When the queue cannot be read.
    pub(crate) async fn counts(&self) -> Result<QueueCounts, OperatorError> {
        queue_counts(&self.client, &self.url).await
    }
}
