//! The changes queue.

use std::collections::BTreeMap;

use aws_sdk_sqs::Client;
use daybook_function_runtime::with_causes;
use daybook_table::{AggregateKey, ChangedAggregates};

use crate::dead_letter_queue::{QueueCounts, queue_counts};
use crate::error::OperatorError;

/// The changes queue, from which the projector learns which aggregates have new events.
#[derive(Debug)]
pub struct ChangesQueue {
    client: Client,
    url: String,
}

impl ChangesQueue {
    pub fn new(client: Client, url: String) -> Self {
        Self { client, url }
    }

    /// Makes the projector project these aggregates, which have events up to these numbers. Returns the number of
    /// messages: one for a hundred aggregates.
    pub async fn send(&self, aggregates: &BTreeMap<AggregateKey, u64>) -> Result<u64, OperatorError> {
        let messages = ChangedAggregates::messages(aggregates);
        for message in &messages {
            let sent = self.client.send_message().queue_url(&self.url).message_body(message.to_body()).send().await;
            sent.map_err(|error| OperatorError::Queue {
                doing: "send to the projector's queue",
                cause: with_causes(&error),
            })?;
        }
        Ok(messages.len() as u64)
    }

    pub async fn counts(&self) -> Result<QueueCounts, OperatorError> {
        queue_counts(&self.client, &self.url).await
    }
}
