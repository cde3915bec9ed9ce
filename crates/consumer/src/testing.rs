//! Tests of a consumer as a pure function, without a table.
//!
//! ```text
//! let data = json!({"id": "7", "customerId": "alice"});
//! given(OrderMails).messages([message("order/7", 1, ("OrderPlaced", 3), data)]).writes([
//!     (RowKey::new("customer/alice", "customer"), json!({"orders": 1})),
//!     (
//!         RowKey::new("customer/alice", "mail/order-7-1-1"),
//!         json!({"to": "alice", "text": "Thank you for order 7, your number 1."}),
//!     ),
//! ]);
//! ```

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::consumer::Consumer;
use crate::draft::handle;
use crate::error::HandleError;
use crate::message::{AggregateId, BusMessage};
use crate::rows::{RowKey, Rows};

/// A message for a test, in epoch 1, with ids that contain its aggregate and number.
///
/// # Panics
///
/// When `aggregate` is not of the form `TYPE/ID`.
pub fn message(aggregate: &str, message_seq: u64, (name, version): (&str, u32), data: Value) -> BusMessage {
    let AggregateId { aggregate_type, id } = aggregate.parse().unwrap_or_else(|error| panic!("{error}"));
    let detail = json!({
        "metadata": {
            "messageId": format!("{aggregate_type}-{id}-1-{message_seq}"),
            "aggregateType": aggregate_type,
            "aggregateId": id,
            "seqNum": message_seq,
            "messageSeq": message_seq,
            "epoch": 1,
            "eventId": format!("event-{aggregate_type}-{id}-1-{message_seq}"),
            "eventVersion": version,
            "occurredAt": "2030-01-01T00:00:00.000Z",
        },
        "data": data,
    });
    BusMessage::new(name, detail).unwrap_or_else(|error| panic!("{error}"))
}

impl BusMessage {
    /// The message in a later epoch, for a test; with the epoch of the message before it if it is the first of its
    /// aggregate in that epoch.
    ///
    /// # Panics
    ///
    /// When the epoch is 0.
    #[must_use]
    pub fn in_epoch(&self, epoch: u32, previous: Option<u32>) -> Self {
        let mut detail = self.detail.clone();
        let id = format!("{}-{epoch}-{}", self.aggregate().to_string().replace('/', "-"), self.metadata.message_seq);
        detail["metadata"]["messageId"] = id.into();
        detail["metadata"]["epoch"] = epoch.into();
        if let Some(previous) = previous {
            detail["metadata"]["previousEpoch"] = previous.into();
        }
        Self::new(self.message_type.clone(), detail).unwrap_or_else(|error| panic!("{error}"))
    }
}

/// Applies a message to these rows, also in a simulation of the project whose messages the consumer receives.
///
/// # Errors
///
/// When the message cannot be applied.
pub fn apply<C: Consumer>(
    consumer: &C,
    rows: &mut BTreeMap<RowKey, Value>,
    message: &BusMessage,
) -> Result<(), HandleError> {
    let read = consumer.reads(message)?.into_iter().map(|key| (key.clone(), rows.get(&key).cloned())).collect();
    for (key, row) in handle(consumer, message, &Rows(&read))?.0 {
        match row {
            Some(row) => rows.insert(key, row),
            None => rows.remove(&key),
        };
    }
    Ok(())
}

/// Starts a test of a consumer without rows.
pub fn given<C: Consumer>(consumer: C) -> Given<C> {
    Given { consumer, rows: BTreeMap::new(), error: None }
}

/// A consumer under test, which [`given`] returns.
pub struct Given<C> {
    consumer: C,
    rows: BTreeMap<RowKey, Value>,
    error: Option<HandleError>,
}

impl<C: Consumer> Given<C> {
    /// Adds rows.
    #[must_use]
    pub fn rows(mut self, rows: impl IntoIterator<Item = (RowKey, Value)>) -> Self {
        self.rows.extend(rows);
        self
    }

    /// Handles messages, one after the other, up to the first that cannot be applied.
    #[must_use]
    pub fn messages(mut self, messages: impl IntoIterator<Item = BusMessage>) -> Self {
        for message in messages {
            self.error = apply(&self.consumer, &mut self.rows, &message).err();
            if self.error.is_some() {
                break;
            }
        }
        self
    }

    /// Expects exactly these rows, and that all messages were applied.
    ///
    /// # Panics
    ///
    /// When the result differs.
    #[track_caller]
    pub fn writes(self, expected: impl IntoIterator<Item = (RowKey, Value)>) {
        assert_eq!(self.error, None, "a message cannot be applied");
        assert_eq!(self.rows, expected.into_iter().collect());
    }

    /// Expects that a message cannot be applied, for this reason.
    ///
    /// # Panics
    ///
    /// When the result differs.
    #[track_caller]
    pub fn fails(self, reason: &str) {
        assert_eq!(self.error.map(|error| error.to_string()).as_deref(), Some(reason));
    }
}
