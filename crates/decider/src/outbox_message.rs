//! The outbox message of a message that an aggregate announced.

use ulid::Ulid;

use crate::aggregate::Message;
use crate::personal;
use crate::record::{MAX_NAME, MessageNumber, OutboxMessage, RecordedEvent};

/// The message with this number. The error is the reason why the message cannot be written.
pub(crate) fn outbox_message(
    aggregate: (&str, &str),
    event: &RecordedEvent,
    number: MessageNumber,
    (message_id, message): (Ulid, Message),
) -> Result<OutboxMessage, String> {
    let (message_type, data) = message.0?;
    if !(1..=MAX_NAME).contains(&message_type.chars().count()) {
        return Err(format!("the message name {message_type:?} must have 1 to {MAX_NAME} characters"));
    }
    // A message is out of reach once it is published, so it contains no personal value.
    let data = personal::referring(personal::attributed(data, aggregate)?);
    let message = OutboxMessage::new(aggregate, event, number, (message_id, message_type, data));
    message.map_err(|error| error.to_string())
}
