//! SQS: standard queues, and the operations on them.
//!
//! - `queues`: messages that wait or are hidden.
//! - `send_message`, `receive_message`, and `receipts`: deleting a message that was received, or hiding it longer.
//! - `get_queue_attributes`: how many messages there are.
//! - `limits`: limits that several operations share.

mod get_queue_attributes;
mod limits;
mod queues;
mod receipts;
mod receive_message;
mod send_message;

pub(crate) use get_queue_attributes::get_queue_attributes;
pub use queues::QueueMessage;
pub(crate) use queues::Queues;
pub(crate) use receipts::{change_visibility, change_visibility_batch, delete_message, delete_message_batch};
pub(crate) use receive_message::receive_message;
pub(crate) use send_message::send_message;
