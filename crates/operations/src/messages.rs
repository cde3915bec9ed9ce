//! The messages that operations send again or delete. [`DeadLetterMessage`] is one of the dead-letter queue, and [`MessageFilter`]
//! selects some of these. [`MessageLabel`] is what is printed of a message, [`MessageOutcome`] what became of it.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use aws_sdk_sqs::types::{Message, MessageSystemAttributeName};
use clap::Args;
use daybook_function_runtime::shortened;
use daybook_stream_relay::{DeadLetter, ResendOutcome};
use daybook_table::keys::partition_name;
use daybook_table::{AggregateKey, OutboxItem, keys};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::error::OperatorError;

/// Maximum characters of an error text that are stored in memory and printed.
const MAX_TEXT: usize = 500;

/// What is known of a message that was received from the dead-letter queue, without its body: a queue may hold more bytes than
/// the memory. Other readers do not see the message until it is put back.
#[derive(Clone, Debug)]
pub struct DeadLetterMessage {
    pub sqs_id: String,
    pub receipt_handle: String,
    /// When SQS received it.
    pub queued_at: Option<Timestamp>,
    /// The outbox message in it, or why it contains none that can be sent.
    pub content: Result<UndeliveredMessage, String>,
}

#[derive(Clone, Debug)]
pub struct UndeliveredMessage {
    pub aggregate: AggregateKey,
    pub label: MessageLabel,
    pub error_code: String,
    pub error_text: String,
    pub attempts: u32,
    pub dead_lettered_at: String,
    /// The sort key of its outbox row, and a hash of the whole row.
    row: (String, u64),
}

/// Which dead-letter messages: those for which each value that is set applies.
#[derive(Clone, Debug, Default, PartialEq, Args)]
pub struct MessageFilter {
    /// Only messages of aggregates of this type.
    #[arg(long = "type", value_name = "TYPE")]
    pub aggregate_type: Option<String>,
    /// Only messages of this aggregate.
    #[arg(long, value_name = "TYPE/ID")]
    pub aggregate: Option<AggregateKey>,
    /// Only messages of this type.
    #[arg(long, value_name = "NAME")]
    pub message_type: Option<String>,
    /// Only messages that failed with this error.
    #[arg(long, value_name = "CODE")]
    pub error_code: Option<String>,
    /// Only this message, by its message id or by SQS's; can be repeated.
    #[arg(long = "id", value_name = "ID")]
    pub ids: Vec<String>,
    /// Only messages that cannot be sent: they contain an unreadable record, are damaged, or are not from the relay.
    #[arg(long)]
    pub unreadable: bool,
}

impl MessageFilter {
    /// Whether a message is selected. One that contains no outbox message can be selected only by SQS's id and as unreadable.
    pub fn selects(&self, message: &DeadLetterMessage) -> bool {
        let content = message.content.as_ref().ok();
        let has = |wanted: &Option<String>, value: fn(&UndeliveredMessage) -> &str| {
            wanted.as_ref().is_none_or(|wanted| content.is_some_and(|content| wanted == value(content)))
        };
        let is = |id: &String| message.has_id(id);
        let is_of = |key: &AggregateKey| content.is_some_and(|content| *key == content.aggregate);
        has(&self.aggregate_type, |content| &content.aggregate.aggregate_type)
            && has(&self.message_type, |content| &content.label.name)
            && has(&self.error_code, |content| &content.error_code)
            && self.aggregate.as_ref().is_none_or(is_of)
            && (self.ids.is_empty() || self.ids.iter().any(is))
            && (!self.unreadable || content.is_none())
    }
}

impl UndeliveredMessage {
    fn read(body: &str) -> Result<Self, String> {
        let dead_letter =
            DeadLetter::read(body).map_err(|error| format!("not a dead-letter message of the relay: {error}"))?;
        let (error_code, error_text) = dead_letter.error.map(|error| (error.code, error.text)).unwrap_or_default();
        let error_text = shortened(&error_text, MAX_TEXT);
        let unreadable = || format!("it contains a record that could not be read ({error_text})");
        let row = dead_letter.message.ok_or_else(unreadable)?;
        let aggregate = keys::aggregate_of_pk(&row.pk)
            .ok_or_else(|| format!("its row has the partition key {:?}, which names no aggregate", row.pk))?;
        let mut hasher = DefaultHasher::new();
        serde_json::to_string(&row).unwrap_or_default().hash(&mut hasher);
        Ok(Self {
            aggregate,
            label: MessageLabel::of(&row),
            row: (row.sk, hasher.finish()),
            error_code,
            error_text,
            attempts: dead_letter.attempts,
            dead_lettered_at: dead_letter.dead_lettered_at,
        })
    }
}

impl DeadLetterMessage {
    /// Reads a message whose id, receipt handle and body are set.
    pub fn of(message: &Message) -> Option<Self> {
        let attributes = message.attributes.as_ref();
        let sent = attributes.and_then(|attributes| attributes.get(&MessageSystemAttributeName::SentTimestamp));
        Some(Self {
            sqs_id: message.message_id.clone()?,
            receipt_handle: message.receipt_handle.clone()?,
            queued_at: sent.and_then(|sent| Timestamp::from_millisecond(sent.parse().ok()?).ok()),
            content: UndeliveredMessage::read(message.body.as_deref()?).map_err(|reason| shortened(&reason, MAX_TEXT)),
        })
    }

    pub fn has_id(&self, id: &str) -> bool {
        id == self.sqs_id || self.content.as_ref().is_ok_and(|content| id == content.label.id)
    }

    /// The order of sending: by aggregate and number. Messages that cannot be sent come last.
    pub fn order(&self) -> impl Ord + use<> {
        let content = self.content.as_ref().ok();
        let order = content.map(|content| (keys::pk(&content.aggregate), content.label.seq, content.row.0.clone()));
        (order.is_none(), order, self.sqs_id.clone())
    }

    /// Whether both contain the same outbox row: the relay may have sent it to the queue twice.
    pub fn is_copy_of(&self, other: &Self) -> bool {
        matches!((&self.content, &other.content), (Ok(one), Ok(other)) if one.aggregate == other.aggregate && one.row == other.row)
    }

    pub fn json(&self) -> Value {
        match &self.content {
            Ok(content) => json!({
                "id": self.sqs_id, "aggregate": content.label.aggregate, "messageSeq": content.label.seq,
                "messageType": content.label.name, "messageId": content.label.id, "errorCode": content.error_code,
                "error": content.error_text, "attempts": content.attempts, "deadLetteredAt": content.dead_lettered_at,
            }),
            Err(reason) => json!({"id": self.sqs_id, "unsendable": reason}),
        }
    }
}

impl fmt::Display for DeadLetterMessage {
    /// One line: `<sqs id> account/123 2 accountOverdrawn 01M7… MalformedDetail …`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = &self.sqs_id;
        match &self.content {
            Ok(content) => {
                let UndeliveredMessage { label, error_code, error_text, attempts, dead_lettered_at: at, .. } = content;
                write!(f, "{id} {label} {error_code}: {error_text} (sent {attempts} times, dead-lettered at {at})")
            }
            Err(reason) => write!(f, "{id} is unsendable: {reason}"),
        }
    }
}

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
