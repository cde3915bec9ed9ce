//! SQS: standard queues, and the operations on them.
//!
//! - `queues`: visible and hidden messages.
//! - `send_message`, `receive_message`, and `receipts`: deletes a received message, or changes how long it is hidden.
//! - `polling`: the same calls without HTTP.
//! - `create_queue`: creates and deletes queues. `get_queue_attributes`: the ARN and the number of messages.
//! - `limits`: limits that several operations share.
//! - `errors`: the two codes of an error.

mod create_queue;
mod errors;
mod get_queue_attributes;
mod limits;
mod polling;
mod queues;
mod receipts;
mod receive_message;
mod send_message;

pub(crate) use create_queue::{create_queue, delete_queue};
pub(crate) use errors::error;
pub(crate) use get_queue_attributes::get_queue_attributes;
pub use polling::ReceivedMessage;
pub use queues::QueueMessage;
pub(crate) use queues::{DEAD_LETTER_QUEUE_SUFFIX, Queues, dead_letter_queue_of, name_of};
pub(crate) use receipts::{change_visibility, change_visibility_batch, delete_message, delete_message_batch};
pub(crate) use receive_message::receive_message;
pub(crate) use send_message::send_message;
