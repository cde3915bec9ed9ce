//! A message that is sent again, what became of it, and the messages that the bus did not accept, with or without a reason.

use std::fmt;

use daybook_stream_relay::ResendOutcome;
use daybook_table::OutboxItem;
use daybook_table::keys::partition_name;
use serde_json::{Value, json};

use crate::error::OperatorError;

/// A message, without its content.
#[derive(Clone, Debug)]
pub struct MessageLabel {
    pub aggregate: String,
    pub seq: u64,
    pub name: String,
    pub id: String,
}

impl MessageLabel {
    pub fn of(row: &OutboxItem) -> Self {
        let (name, id) = (row.message_type.clone(), row.message_id.clone());
        Self { aggregate: partition_name(&row.pk), seq: row.message_seq, name, id }
    }

    pub fn json(&self) -> Value {
        let Self { aggregate, seq, name, id } = self;
        json!({"aggregate": aggregate, "messageSeq": seq, "messageType": name, "messageId": id})
    }
}

impl fmt::Display for MessageLabel {
    /// `account/123 2 accountOverdrawn 01M7…`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { aggregate, seq, name, id } = self;
        write!(f, "{aggregate} {seq} {name} {id}")
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessageOutcome {
    WouldSend,
    Sent,
    Rejected(String),
    SentNotDeleted(String),
    Unsendable,
    WouldDelete,
    Deleted,
    NotDeleted(String),
}

impl MessageOutcome {
    pub fn name(&self) -> &'static str {
        match self {
            Self::WouldSend => "would-send",
            Self::Sent => "sent",
            Self::Rejected(_) => "rejected",
            Self::SentNotDeleted(_) => "sent-not-deleted",
            Self::Unsendable => "unsendable",
            Self::WouldDelete => "would-delete",
            Self::Deleted => "deleted",
            Self::NotDeleted(_) => "not-deleted",
        }
    }

    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Rejected(reason) | Self::SentNotDeleted(reason) | Self::NotDeleted(reason) => Some(reason),
            Self::WouldSend | Self::Sent | Self::Unsendable | Self::WouldDelete | Self::Deleted => None,
        }
    }
}

/// The number of messages that were not sent, and the first known reason.
#[derive(Debug, Default)]
pub(crate) struct UnsentMessages {
    count: usize,
    cause: Option<String>,
}

impl UnsentMessages {
    /// Counts what became of a message; `None` if it was not sent.
    pub(crate) fn count(
        &mut self,
        outcome: ResendOutcome,
        (sent, rejected): (&mut usize, &mut usize),
    ) -> Option<MessageOutcome> {
        match outcome {
            ResendOutcome::Sent => {
                *sent += 1;
                Some(MessageOutcome::Sent)
            }
            ResendOutcome::Rejected(error) => {
                *rejected += 1;
                Some(MessageOutcome::Rejected(error.to_string()))
            }
            ResendOutcome::Unsent(error) => {
                self.count += 1;
                self.cause = self.cause.take().or(error.map(|error| error.to_string()));
                None
            }
        }
    }

    /// Whether there is any unsent message. Then no later message must be sent: it would overtake the unsent one.
    pub(crate) fn any(&self) -> bool {
        self.count > 0
    }

    /// The result of a command that was not interrupted.
    pub(crate) fn into_result(self, next: String) -> Result<(), OperatorError> {
        let cause = self.cause.unwrap_or_else(|| "it returned no reason".to_owned());
        if self.count > 0 { Err(OperatorError::Bus { cause, next }) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsent_messages_without_a_known_reason_end_in_an_error() {
        assert!(!UnsentMessages::default().any());
        assert!(UnsentMessages::default().into_result(String::new()).is_ok());
        let mut unsent = UnsentMessages::default();
        assert!(unsent.count(ResendOutcome::Unsent(None), (&mut 0, &mut 0)).is_none());
        assert!(unsent.any());
        let error = unsent.into_result("run it again".to_owned()).unwrap_err();
        assert_eq!(error.to_string(), "the bus accepts no more messages: it returned no reason; run it again");
    }
}
