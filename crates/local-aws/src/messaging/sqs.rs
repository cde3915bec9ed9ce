//! SQS: standard queues, and the operations on them.
//!
//! - `queues`: visible and hidden messages.
//! - `send_message`, `receive_message`, and `receipts`: deletes a received message, or changes how long it is hidden.
//! - `queue_operations`: creates and deletes queues, and returns their ARN and number of messages.
//! - `limits`: limits and errors that several operations share.

mod limits;
mod queue_operations;
mod queues;
mod receipts;
mod receive_message;
mod send_message;

pub(crate) use limits::error;
pub(crate) use queue_operations::{create_queue, delete_queue, get_queue_attributes};
pub use queues::QueueMessage;
pub(crate) use queues::{DEAD_LETTER_QUEUE_SUFFIX, Queues, dead_letter_queue_of, name_of};
pub(crate) use receipts::{change_visibility, change_visibility_batch, delete_message, delete_message_batch};
pub use receive_message::ReceivedMessage;
pub(crate) use receive_message::receive_message;
pub(crate) use send_message::send_message;
