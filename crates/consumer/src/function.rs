//! One invocation: a batch of a queue, an event of a rule, or the request of an operator.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use aws_types::SdkConfig;
use futures_util::{FutureExt, StreamExt, stream};
use metrics::{Unit, counter, describe_counter, describe_histogram};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::consumer::Consumer;
use crate::error::TableError;
use crate::message::{AggregateId, BusMessage};
use crate::order::Messages;
use crate::receive::{Received, Receiver};
use crate::request::execute;
use crate::table::ConsumerTable;

/// Maximum aggregates of a batch whose messages are applied concurrently.
pub const CONCURRENCY: usize = 8;

/// The time that an invocation leaves for its response.
const MARGIN: Duration = Duration::from_secs(1);

/// A consumer as a Lambda function. There is one for each process.
#[derive(Debug)]
pub struct ConsumerFunction<C> {
    consumer: C,
    table: ConsumerTable,
}

/// Why an invocation fails. Lambda repeats the invocation of an event of a rule.
#[derive(Debug, thiserror::Error)]
pub enum InvocationError {
    /// The message of a rule without a queue is neither applied nor stored, for example because the table throttles.
    #[error("the message must be delivered again")]
    Unsettled,
    /// The payload is neither a batch, nor an event, nor a request.
    #[error("the payload cannot be read")]
    Unreadable(#[source] serde_json::Error),
    /// The request of an operator cannot be executed.
    #[error(transparent)]
    Table(#[from] TableError),
}

impl<C: Consumer> ConsumerFunction<C> {
    /// The function of a consumer with the rows in this table, at the endpoint of `aws`.
    ///
    /// # Panics
    ///
    /// When the consumer's `NAME` is empty or contains `#`.
    pub fn new(consumer: C, aws: &SdkConfig, table_name: impl Into<String>) -> Self {
        assert!(!C::NAME.is_empty() && !C::NAME.contains('#'), "a consumer cannot have the name {:?}", C::NAME);
        for name in [
            "MessagesApplied",
            "MessagesDuplicate",
            "MessagesStored",
            "MessagesFailed",
            "MessagesUnreadable",
            "MessagesUnsettled",
            "LostMessagesApplied",
        ] {
            describe_counter!(name, Unit::Count, "");
        }
        describe_histogram!("AggregatesStopped", Unit::Count, "");
        describe_histogram!("OldestGapSeconds", Unit::Seconds, "");
        Self { consumer, table: ConsumerTable::new(aws, table_name, C::NAME) }
    }

    /// The consumer's table.
    pub fn table(&self) -> &ConsumerTable {
        &self.table
    }

    /// Handles an invocation, in the time until `deadline`, and returns its response.
    ///
    /// # Errors
    ///
    /// See [`InvocationError`]. A batch never fails: its response lists the messages that SQS must deliver again.
    pub async fn handle(&self, mut payload: Value, deadline: Instant) -> Result<Value, InvocationError> {
        let cutoff = deadline.checked_sub(MARGIN).unwrap_or(deadline);
        if payload.get("request").is_some() {
            let request = serde_json::from_value(payload).map_err(InvocationError::Unreadable)?;
            // On the heap, and below too: the compiler limits how deeply the futures of a `main` are nested.
            return Ok(execute(&self.consumer, &self.table, request, cutoff).boxed().await?);
        }
        if payload.get("Records").is_none() {
            let message = BusMessage::of_event(payload).map_err(|error| error.to_string());
            let unsettled = self.receive(BTreeMap::from([("the event".to_owned(), message)]), cutoff).await;
            return if unsettled.is_empty() { Ok(Value::Null) } else { Err(InvocationError::Unsettled) };
        }
        let records: Vec<Value> =
            serde_json::from_value(payload["Records"].take()).map_err(InvocationError::Unreadable)?;
        let messages = records.iter().map(delivery).collect();
        let unsettled = self.receive(messages, cutoff).await;
        let failures: Vec<_> = unsettled.into_iter().map(|delivery| json!({"itemIdentifier": delivery})).collect();
        Ok(json!({"batchItemFailures": failures}))
    }

    /// Applies or stores messages, by the ids of their deliveries. Returns the deliveries that must be repeated.
    async fn receive(
        &self,
        deliveries: BTreeMap<String, Result<BusMessage, String>>,
        cutoff: Instant,
    ) -> BTreeSet<String> {
        let mut unsettled = BTreeSet::new();
        let mut by_aggregate: BTreeMap<AggregateId, Messages> = BTreeMap::new();
        let mut deliveries_of: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (delivery, message) in deliveries {
            match message {
                Ok(message) => {
                    deliveries_of.entry(message.metadata.message_id.clone()).or_default().push(delivery.clone());
                    let messages = by_aggregate.entry(message.aggregate()).or_default();
                    let same = messages.entry(message.number()).or_insert_with(|| message.clone());
                    // Another message of the batch has the same number. The next attempt finds that one in the table.
                    if same.metadata.message_id != message.metadata.message_id {
                        unsettled.insert(delivery);
                    }
                }
                Err(error) => {
                    counter!("MessagesUnreadable").increment(1);
                    tracing::error!(delivery, error, "a message cannot be read");
                    unsettled.insert(delivery);
                }
            }
        }
        let runs =
            by_aggregate.iter().map(|(aggregate, messages)| self.receive_of(aggregate, messages, cutoff).boxed());
        let retry: Vec<BTreeSet<String>> = stream::iter(runs).buffer_unordered(CONCURRENCY).collect().await;
        unsettled.extend(retry.iter().flatten().flat_map(|message_id| deliveries_of[message_id].clone()));
        counter!("MessagesUnsettled").increment(unsettled.len() as u64);
        unsettled
    }

    /// Applies or stores the messages of an aggregate. Returns the ids of those that must be delivered again.
    async fn receive_of(&self, aggregate: &AggregateId, messages: &Messages, cutoff: Instant) -> BTreeSet<String> {
        let receiver = Receiver { consumer: &self.consumer, table: &self.table, aggregate, cutoff };
        match receiver.receive(None, messages).await {
            Ok(received) => {
                count(&received);
                received.retry
            }
            Err(error) => {
                let error: &dyn std::error::Error = &error;
                tracing::error!(%aggregate, error, "the messages of an aggregate are neither applied nor stored");
                messages.values().map(|message| message.metadata.message_id.clone()).collect()
            }
        }
    }
}

/// A message of a batch, as SQS passes it, with its id, by which its delivery is repeated. Without an id, nothing can be
/// repeated but the whole batch, which an empty one in the response does.
fn delivery(record: &Value) -> (String, Result<BusMessage, String>) {
    let id = record["messageId"].as_str().unwrap_or_default();
    let read = || -> Result<_, Box<dyn std::error::Error>> {
        let body = record["body"].as_str().filter(|_| !id.is_empty()).ok_or("it has no messageId or no body")?;
        Ok(BusMessage::of_event(serde_json::from_str(body)?)?)
    };
    (id.to_owned(), read().map_err(|error| error.to_string()))
}

fn count(received: &Received) {
    for (name, number) in [
        ("MessagesApplied", received.applied),
        ("MessagesDuplicate", received.duplicates.unwrap_or_default()),
        ("MessagesStored", received.stored),
        ("MessagesFailed", received.failed),
        ("LostMessagesApplied", received.lost),
    ] {
        counter!(name).increment(number);
    }
}
