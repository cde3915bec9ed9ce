//! A message of the dead-letter queue, and the options that select messages.

use std::fmt;

use aws_sdk_sqs::types::Message;
use clap::Args;
use daybook_stream_relay::DeadLetter;
use daybook_table::{AggregateKey, OutboxItem};
use serde_json::{Value, json};

use super::selection::AggregateName;

/// A message that was received from the dead-letter queue. Other readers do not see it until it is put back.
#[derive(Clone, Debug)]
pub(crate) struct DeadLetterMessage {
    pub(crate) sqs_id: String,
    pub(crate) receipt_handle: String,
    pub(crate) body: String,
    /// The outbox message in it, or why it contains none that can be sent.
    pub(crate) content: Result<UndeliveredMessage, String>,
}

/// An outbox message that the relay could not send.
#[derive(Clone, Debug)]
pub(crate) struct UndeliveredMessage {
    pub(crate) aggregate: AggregateKey,
    pub(crate) row: OutboxItem,
    error_code: String,
    error_text: String,
    attempts: u32,
    /// When the relay sent it to the dead-letter queue.
    dead_lettered_at: String,
}

/// Which dead-letter messages; all if no option is given.
#[derive(Clone, Debug, Default, Args)]
pub struct MessageFilterArgs {
    /// Only messages of aggregates of this type.
    #[arg(long = "type", value_name = "TYPE")]
    pub aggregate_type: Option<String>,
    /// Only messages of this aggregate.
    #[arg(long, value_name = "TYPE/ID")]
    pub aggregate: Option<AggregateName>,
    /// Only messages of this type.
    #[arg(long, value_name = "NAME")]
    pub message_type: Option<String>,
    /// Only messages that failed with this error.
    #[arg(long, value_name = "CODE")]
    pub error_code: Option<String>,
    /// Only this message, by its message id or by SQS's; can be repeated.
    #[arg(long, value_name = "ID")]
    pub id: Vec<String>,
}

impl MessageFilterArgs {
    /// Whether a message is selected. One that contains no outbox message can be selected only by SQS's id.
    pub(crate) fn selects(&self, message: &DeadLetterMessage) -> bool {
        let content = message.content.as_ref().ok();
        let has = |wanted: &Option<String>, value: fn(&UndeliveredMessage) -> &str| {
            wanted.as_ref().is_none_or(|wanted| content.is_some_and(|content| wanted == value(content)))
        };
        let is = |id: &String| *id == message.sqs_id || content.is_some_and(|content| *id == content.row.message_id);
        let is_of = |name: &AggregateName| content.is_some_and(|content| name.0 == content.aggregate);
        has(&self.aggregate_type, |content| &content.aggregate.aggregate_type)
            && has(&self.message_type, |content| &content.row.message_type)
            && has(&self.error_code, |content| &content.error_code)
            && self.aggregate.as_ref().is_none_or(is_of)
            && (self.id.is_empty() || self.id.iter().any(is))
    }
}

impl UndeliveredMessage {
    fn read(body: &str) -> Result<Self, String> {
        let dead_letter =
            DeadLetter::read(body).map_err(|error| format!("not a dead-letter message of the relay: {error}"))?;
        let (error_code, error_text) = dead_letter.error.map(|error| (error.code, error.text)).unwrap_or_default();
        let unreadable = || format!("it contains a record that could not be read ({error_text})");
        let row = dead_letter.message.ok_or_else(unreadable)?;
        let aggregate = AggregateKey::from_pk(&row.pk)
            .ok_or_else(|| format!("its row has the partition key {:?}, which names no aggregate", row.pk))?;
        Ok(Self {
            aggregate,
            row,
            error_code,
            error_text,
            attempts: dead_letter.attempts,
            dead_lettered_at: dead_letter.dead_lettered_at,
        })
    }
}

impl fmt::Display for UndeliveredMessage {
    /// `account/123 2 accountOverdrawn 01M7…`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OutboxItem { message_seq, message_type, message_id, .. } = &self.row;
        write!(f, "{} {message_seq} {message_type} {message_id}", self.aggregate)
    }
}

impl DeadLetterMessage {
    pub(crate) fn new(message: Message) -> Option<Self> {
        let body = message.body?;
        let content = UndeliveredMessage::read(&body);
        Some(Self { sqs_id: message.message_id?, receipt_handle: message.receipt_handle?, body, content })
    }

    /// The order of sending: by aggregate and number. Messages that cannot be sent come last.
    pub(crate) fn order(&self) -> impl Ord + use<> {
        let row = self.content.as_ref().ok().map(|content| &content.row);
        let order = row.map(|row| (row.pk.clone(), row.message_seq, row.sk.clone()));
        (order.is_none(), order, self.sqs_id.clone())
    }

    /// Whether both contain the same outbox row: the relay may have sent it to the queue twice.
    pub(crate) fn is_copy_of(&self, other: &Self) -> bool {
        matches!((&self.content, &other.content), (Ok(one), Ok(other)) if one.row == other.row)
    }

    pub(crate) fn json(&self) -> Value {
        match &self.content {
            Ok(UndeliveredMessage { aggregate, row, error_code, error_text, attempts, dead_lettered_at }) => json!({
                "id": self.sqs_id, "aggregate": aggregate.to_string(), "messageSeq": row.message_seq,
                "messageType": row.message_type, "messageId": row.message_id, "errorCode": error_code,
                "error": error_text, "attempts": attempts, "deadLetteredAt": dead_lettered_at,
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
                let UndeliveredMessage { error_code, error_text, attempts, dead_lettered_at, .. } = content;
                write!(
                    f,
                    "{id} {content} {error_code}: {error_text} (sent {attempts} times, dead-lettered at {dead_lettered_at})"
                )
            }
            Err(reason) => write!(f, "{id} is unsendable: {reason}"),
        }
    }
}
