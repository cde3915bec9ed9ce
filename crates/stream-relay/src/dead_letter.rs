//! What goes to the dead-letter queue: everything that it takes to understand a failure and to send the message later.
//!
//! Size: an item is at most 400 KB, and JSON within a JSON string at most doubles, so a letter fits the 1 MiB of SQS.
//! Only text full of control characters could outgrow it. SQS refuses such a letter, which then is what it is when SQS
//! takes none: unsettled, for the mapping's own on-failure destination to catch.

use std::time::SystemTime;

use aws_sdk_eventbridge::primitives::{DateTime, DateTimeFormat};
use daybook_table::OutboxItem;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::message::{Body, EntryError, Message};
use crate::record::Coordinates;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DeadLetter<'a> {
    /// The outbox row.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a OutboxItem>,
    /// The stream record, where it could not be read as an outbox row.
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<&'a RawValue>,
    error: Option<&'a EntryError>,
    /// How often it was sent; 0 when its fault was plain to see.
    attempts: u32,
    stream: Option<&'a Coordinates>,
    /// RFC 3339.
    parked_at: String,
}

/// A letter as it is read again, to be looked at and sent.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Letter {
    /// The outbox row; none where the record could not be read as one.
    pub message: Option<OutboxItem>,
    /// Why it was parked.
    pub error: Option<EntryError>,
    /// How often it was sent.
    #[serde(default)]
    pub attempts: u32,
    /// RFC 3339.
    #[serde(default)]
    pub parked_at: String,
}

impl Letter {
    /// Reads a letter's body.
    ///
    /// # Errors
    ///
    /// When it is not one: somebody else wrote into the queue.
    pub fn read(body: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(body)
    }
}

/// The letter's body.
pub(crate) fn body(message: &Message, attempts: u32) -> Result<String, serde_json::Error> {
    let (item, record) = match &message.body {
        Body::Row { item, .. } => (Some(item), None),
        Body::Record { raw, .. } => (None, Some(raw.as_ref())),
    };
    let letter = DeadLetter {
        message: item,
        record,
        error: message.refusal.as_ref(),
        attempts,
        stream: message.records.first(),
        parked_at: DateTime::from(SystemTime::now()).fmt(DateTimeFormat::DateTime).unwrap_or_default(),
    };
    // The two characters that JSON takes as they are and SQS does not.
    Ok(serde_json::to_string(&letter)?.replace('\u{FFFE}', "\\ufffe").replace('\u{FFFF}', "\\uffff"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::settings::{Pace, RelaySettings};

    fn parked(record: &Value) -> Message {
        let settings = RelaySettings {
            event_bus_name: "main".into(),
            event_source: "daybook".into(),
            dlq_url: "dlq".into(),
            pace: Pace::default(),
        };
        let raw = RawValue::from_string(record.to_string()).unwrap();
        crate::message::gather(vec![raw], &settings).remove(0)
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
    fn a_letter_holds_the_whole_row() {
        let mut message = parked(&record("{\"data\": 1.0}"));
        message.refusal = Some(EntryError::new("MalformedDetail", "Detail is malformed."));
        let mut letter: Value = serde_json::from_str(&body(&message, 2).unwrap()).unwrap();
        let parked_at = letter.as_object_mut().unwrap().remove("parkedAt").unwrap();
        assert!(parked_at.as_str().unwrap().ends_with('Z'), "{parked_at}");
        assert_eq!(
            letter,
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
    fn a_letter_gives_the_row_back_to_the_byte() {
        let mut message = parked(&record("{\"data\": 1.0, \"text\": \"\u{FFFE}\\n\u{1F600}\"}"));
        message.refusal = Some(EntryError::new("MalformedDetail", "Detail is malformed."));
        let letter = Letter::read(&body(&message, 2).unwrap()).unwrap();
        let Body::Row { item, .. } = &message.body else { panic!("{message:?}") };
        assert_eq!((letter.message.as_ref(), letter.error, letter.attempts), (Some(item), message.refusal, 2));
        assert!(!letter.parked_at.is_empty());
        assert!(Letter::read("{\"message\": 7}").is_err() && Letter::read("hello").is_err());
    }

    #[test]
    fn what_cannot_be_read_goes_raw() {
        let mut unreadable = record("{}");
        unreadable["dynamodb"]["NewImage"]["messageSeq"] = json!({"N": "three"});
        let letter: Value = serde_json::from_str(&body(&parked(&unreadable), 0).unwrap()).unwrap();
        assert_eq!((&letter["record"], &letter["message"]), (&unreadable, &Value::Null));
        assert_eq!(letter["error"]["code"], "UnreadableRecord");
        assert!(Letter::read(&letter.to_string()).unwrap().message.is_none());
    }

    #[test]
    fn the_largest_row_fits_a_letter() {
        let quotes = "\"".repeat(400 * 1024);
        assert!(body(&parked(&record(&quotes)), 0).unwrap().len() < 1024 * 1024);
    }

    #[test]
    fn a_letter_has_only_characters_that_sqs_takes() {
        let text = body(&parked(&record("\u{FFFE}\u{FFFF}\u{0}\u{1F600}")), 0).unwrap();
        assert!(text.chars().all(|character| character >= ' ' && !matches!(character, '\u{FFFE}' | '\u{FFFF}')));
        let letter: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(letter["message"]["detail"], "\u{FFFE}\u{FFFF}\u{0}\u{1F600}");
    }
}
