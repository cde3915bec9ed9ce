//! The calls that a mapping of a queue to a function makes, without HTTP and without injected faults.

use std::time::Duration;

use tokio::time::Instant;

use crate::messaging::bus::Bus;
use crate::messaging::sqs::queues::Queued;
use crate::messaging::sqs::receive_message::receive;
use crate::state::StateError;

/// How long a call waits for a message.
const WAIT: Duration = Duration::from_secs(20);

/// A message that was received, and is hidden for others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedMessage {
    /// The id that the queue assigned.
    pub message_id: String,
    pub receipt_handle: String,
    pub body: String,
    /// How often it was received, this time included.
    pub receives: u32,
    /// When it was sent, in milliseconds since 1970.
    pub sent: u64,
    /// When it was received for the first time, in milliseconds since 1970.
    pub first_received: u64,
}

impl ReceivedMessage {
    fn new(queued: &Queued) -> Self {
        Self {
            message_id: queued.message.message_id.clone(),
            receipt_handle: queued.handle.clone().unwrap_or_default(),
            body: queued.message.body.clone(),
            receives: queued.receives,
            sent: queued.sent,
            first_received: queued.first_received,
        }
    }
}

impl Bus {
    /// Waits for messages of a queue, receives up to `most`, and hides them for a duration. Returns none after a while.
    pub async fn receive(&self, queue: &str, most: usize, hide: Duration) -> Result<Vec<ReceivedMessage>, StateError> {
        receive(self, queue, (most, hide), Instant::now() + WAIT, ReceivedMessage::new).await
    }

    /// Deletes a received message. Has no effect if it was received again since.
    pub fn delete(&self, queue: &str, message: &ReceivedMessage) {
        if let Err(error) = self.state().delete(queue, &message.receipt_handle) {
            tracing::error!(queue, error = error.message, "cannot delete a message");
        }
    }

    /// Makes a received message visible after a duration from now. Has no effect if it was received again since.
    pub fn hide(&self, queue: &str, message: &ReceivedMessage, hidden: Duration) {
        // Fails only for a message that another receiver has deleted.
        drop(self.state().queues.hide(queue, &message.receipt_handle, hidden));
    }
}
