//! Dead-letter messages: the contents of the dead-letter queue (DLQ), with everything that is needed to understand a
//! failure and to send the message later.
//!
//! Size: an item has a maximum of 400 KB, and JSON within a JSON string at most doubles, so a dead-letter message fits
//! the 1 MiB of SQS. Only text full of control characters could exceed it. SQS rejects such a dead-letter message. The
//! message then stays unsettled, as in an outage of SQS, until the mapping discards its record to the on-failure
//! destination.

use std::time::SystemTime;

use aws_sdk_eventbridge::primitives::{DateTime, DateTimeFormat};
use daybook_table::OutboxItem;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::message::{Body, EntryError, PendingMessage};
use crate::record::Coordinates;

pub(crate) const MAX_ATTEMPTS: u32 = 3;

/// The readable part of a dead-letter message, to show it and to send its message again.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetter {
    /// The outbox row; `None` when the record could not be read as one.
    pub message: Option<OutboxItem>,
    pub error: Option<EntryError>,
    pub attempts: u32,
    /// When it was sent to the dead-letter queue, in RFC 3339.
    pub dead_lettered_at: String,
}

impl DeadLetter {
    pub fn read(body: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(body)
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DeadLetterBody<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a OutboxItem>,
    /// The stream record, when it could not be read as an outbox row.
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<&'a RawValue>,
    error: Option<&'a EntryError>,
    /// The number of attempts to send it; 0 when its error was found before the first attempt.
    attempts: u32,
    stream: Option<&'a Coordinates>,
    dead_lettered_at: String,
}

pub(crate) fn body(message: &PendingMessage, now: SystemTime) -> Result<String, serde_json::Error> {
    let (item, record) = match &message.body {
        Body::Row(row) => (Some(&row.item), None),
        Body::Record { raw, .. } => (None, Some(raw.as_ref())),
    };
    let dead_letter = DeadLetterBody {
        message: item,
        record,
        error: message.permanent_error.as_ref(),
        attempts: message.attempts.count,
        stream: message.records.first(),
        dead_lettered_at: DateTime::from(now).fmt(DateTimeFormat::DateTime).unwrap_or_default(),
    };
    // JSON allows these two characters unescaped, but SQS does not.
    Ok(serde_json::to_string(&dead_letter)?.replace('\u{FFFE}', "\\ufffe").replace('\u{FFFF}', "\\uffff"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::settings::{RelaySettings, RetryPolicy};

    fn pending(record: &Value) -> PendingMessage {
        let settings = RelaySettings {
            event_bus_name: "main".into(),
            event_source: "daybook".into(),
            dlq_url: "dlq".into(),
            retry: RetryPolicy::default(),
        };
        let raw = RawValue::from_string(record.to_string()).unwrap();
        crate::message::gather(vec![raw], &settings, |_| false).messages.remove(0)
    }

    fn record(detail: &str) -> Value {
        json!({
            "eventID": "e1", "eventName": "INSERT", "eventSourceARN": "arn:stream",
            "dynamodb": {
                "NewImage": {
                    "pk": {"S": "AGGREGATE#todo#1"}, "sk": {"S": "OUTBOX#000000000001#0"}, "messageId": {"S": "m1"},
                    "messageType": {"S": "TodoCreated"}, "messageSeq": {"N": "3"}, "detail": {"S": detail},
                    "occurredAt": {"S": "2026-11-21T01:02:03.456Z"}, "seqNum": {"N": "1"}, "ttl": {"N": "7"},
                    "traceHeader": {"S": "Root=1-5759e988-bd862e3fe1be46a994272793"},
                },
                "SequenceNumber": "111",
            },
        })
    }

    #[test]
    fn dead_letter_message_contains_the_whole_row() {
        let mut message = pending(&record("{\"data\": 1.0}"));
        message.permanent_error = Some(EntryError::new("MalformedDetail", "Detail is malformed."));
        message.attempts.count = 2;
        let mut dead_letter: Value = serde_json::from_str(&body(&message, SystemTime::now()).unwrap()).unwrap();
        let dead_lettered_at = dead_letter.as_object_mut().unwrap().remove("deadLetteredAt").unwrap();
        assert!(dead_lettered_at.as_str().unwrap().ends_with('Z'), "{dead_lettered_at}");
        assert_eq!(
            dead_letter,
            json!({
                "message": {
                    "pk": "AGGREGATE#todo#1", "sk": "OUTBOX#000000000001#0", "messageId": "m1",
                    "messageType": "TodoCreated", "messageSeq": 3, "detail": "{\"data\": 1.0}",
                    "occurredAt": "2026-11-21T01:02:03.456Z", "seqNum": 1, "ttl": 7,
                    "traceHeader": "Root=1-5759e988-bd862e3fe1be46a994272793",
                },
                "error": {"code": "MalformedDetail", "text": "Detail is malformed."},
                "attempts": 2,
                "stream": {"eventSourceARN": "arn:stream", "eventID": "e1", "sequenceNumber": "111"},
            })
        );
    }

    #[test]
    fn row_read_from_a_dead_letter_message_is_unchanged() {
        let mut message = pending(&record("{\"data\": 1.0, \"text\": \"\u{FFFE}\\n\u{1F600}\"}"));
        message.permanent_error = Some(EntryError::new("MalformedDetail", "Detail is malformed."));
        message.attempts.count = 2;
        let dead_letter = DeadLetter::read(&body(&message, SystemTime::now()).unwrap()).unwrap();
        let Body::Row(row) = &message.body else { panic!("{message:?}") };
        assert_eq!(
            (dead_letter.message.as_ref(), dead_letter.error, dead_letter.attempts),
            (Some(&row.item), message.permanent_error, 2)
        );
        assert!(!dead_letter.dead_lettered_at.is_empty());
        assert!(DeadLetter::read("{\"message\": 7}").is_err() && DeadLetter::read("hello").is_err());
    }

    #[test]
    fn unreadable_record_is_stored_raw() {
        let mut unreadable = record("{}");
        unreadable["dynamodb"]["NewImage"]["messageSeq"] = json!({"N": "three"});
        let dead_letter: Value =
            serde_json::from_str(&body(&pending(&unreadable), SystemTime::now()).unwrap()).unwrap();
        assert_eq!((&dead_letter["record"], &dead_letter["message"]), (&unreadable, &Value::Null));
        assert_eq!(dead_letter["error"]["code"], "UnreadableRecord");
        assert!(DeadLetter::read(&dead_letter.to_string()).unwrap().message.is_none());
    }

    #[test]
    fn largest_row_fits_a_dead_letter_message() {
        let quotes = "\"".repeat(400 * 1024);
        assert!(body(&pending(&record(&quotes)), SystemTime::now()).unwrap().len() < 1024 * 1024);
    }

    #[test]
    fn dead_letter_message_has_only_characters_that_sqs_accepts() {
        let text = body(&pending(&record("\u{FFFE}\u{FFFF}\u{0}\u{1F600}")), SystemTime::now()).unwrap();
        assert!(text.chars().all(|character| character >= ' ' && !matches!(character, '\u{FFFE}' | '\u{FFFF}')));
        let dead_letter: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(dead_letter["message"]["detail"], "\u{FFFE}\u{FFFF}\u{0}\u{1F600}");
    }
}
