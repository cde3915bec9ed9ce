//! Stream records as Lambda delivers them, and the payload that contains them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Number, Value};

use daybook_stream_batch::SequenceNumber;

/// Maximum payload of a synchronous invocation: 6 MB.
pub(crate) const MAX_PAYLOAD_BYTES: usize = 6 * 1024 * 1024;

/// The bytes of `{"Records":[` and `]}`, minus the comma that the last record does not need.
pub(crate) const ENVELOPE_BYTES: usize = 13;

/// One record of a stream, in the form in which a function receives it.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    sequence_number: SequenceNumber,
    /// The keys of the item that changed, as text that is the same for every record of the item.
    pub(crate) item: String,
    /// The time of the change since 1970, in the precision of the stream.
    pub(crate) created: Duration,
    json: Value,
    bytes: usize,
}

impl Record {
    /// Takes a record of `GetRecords` and makes the changes that Lambda makes: it adds the stream's ARN, gives the time
    /// in whole seconds, and writes the names in `userIdentity` in lower case. All other members stay unchanged.
    pub fn from_stream(mut record: Value, stream_arn: &str) -> Result<Self, UnreadableRecord> {
        let change = record.get_mut("dynamodb").and_then(Value::as_object_mut).ok_or(UnreadableRecord("dynamodb"))?;
        let sequence_number = change
            .get("SequenceNumber")
            .and_then(Value::as_str)
            .and_then(SequenceNumber::parse)
            .ok_or(UnreadableRecord("dynamodb.SequenceNumber"))?;
        let keys = change.get("Keys").and_then(Value::as_object).ok_or(UnreadableRecord("dynamodb.Keys"))?;
        // Sorted by name, so that their text is the same for every record of an item.
        let sorted: BTreeMap<_, _> = keys.iter().collect();
        let item = serde_json::to_string(&sorted).expect("a map with text keys can be written as JSON");
        let created = change
            .get("ApproximateCreationDateTime")
            .and_then(Value::as_f64)
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
            .ok_or(UnreadableRecord("dynamodb.ApproximateCreationDateTime"))?;
        change.insert("ApproximateCreationDateTime".to_owned(), Number::from(created.as_secs()).into());

        record["eventSourceARN"] = stream_arn.into();
        if let Some(identity) = record.get_mut("userIdentity").and_then(Value::as_object_mut) {
            for (of_get_records, of_lambda) in [("PrincipalId", "principalId"), ("Type", "type")] {
                if let Some(value) = identity.remove(of_get_records) {
                    identity.insert(of_lambda.to_owned(), value);
                }
            }
        }
        let bytes = record.to_string().len();
        Ok(Self { sequence_number, item, created, json: record, bytes })
    }

    pub fn sequence_number(&self) -> &SequenceNumber {
        &self.sequence_number
    }

    pub fn json(&self) -> &Value {
        &self.json
    }

    /// The bytes that it adds to a payload, including its comma.
    pub(crate) fn payload_bytes(&self) -> usize {
        self.bytes + 1
    }
}

/// The payload of an invocation: `{"Records":[…]}`.
pub(crate) fn payload<'a>(records: impl IntoIterator<Item = &'a Record>) -> String {
    let records: Vec<_> = records.into_iter().map(Record::json).collect();
    serde_json::to_string(&BTreeMap::from([("Records", records)])).expect("JSON values can be written as JSON")
}

/// A record without a member that a mapping needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stream record without a usable {0}")]
pub struct UnreadableRecord(&'static str);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ARN: &str = "arn:aws:dynamodb:eu-west-1:000000000000:table/daybook/stream/2026-01-01T00:00:00.000";

    fn of_get_records() -> Value {
        json!({
            "eventID": "1", "eventName": "REMOVE", "eventVersion": "1.1", "eventSource": "aws:dynamodb",
            "awsRegion": "eu-west-1",
            "dynamodb": {
                "ApproximateCreationDateTime": 1_700_000_000.75, "Keys": {"sk": {"S": "b"}, "pk": {"S": "a"}},
                "SequenceNumber": "100", "SizeBytes": 26, "StreamViewType": "NEW_IMAGE"
            },
            "userIdentity": {"PrincipalId": "dynamodb.amazonaws.com", "Type": "Service"}
        })
    }

    #[test]
    fn record_from_stream_has_the_form_that_lambda_delivers() {
        let record = Record::from_stream(of_get_records(), ARN).unwrap();
        assert_eq!(record.item, r#"{"pk":{"S":"a"},"sk":{"S":"b"}}"#);
        assert_eq!(record.created, Duration::from_millis(1_700_000_000_750));
        let event: Value = serde_json::from_str(&payload([&record])).unwrap();
        assert_eq!(
            event,
            json!({"Records": [{
                "eventID": "1", "eventName": "REMOVE", "eventVersion": "1.1", "eventSource": "aws:dynamodb",
                "awsRegion": "eu-west-1", "eventSourceARN": ARN,
                "dynamodb": {
                    "ApproximateCreationDateTime": 1_700_000_000, "Keys": {"sk": {"S": "b"}, "pk": {"S": "a"}},
                    "SequenceNumber": "100", "SizeBytes": 26, "StreamViewType": "NEW_IMAGE"
                },
                "userIdentity": {"principalId": "dynamodb.amazonaws.com", "type": "Service"}
            }]})
        );
    }

    #[test]
    fn payload_bytes_add_up_to_the_payload() {
        let record = Record::from_stream(of_get_records(), ARN).unwrap();
        for count in 1..4 {
            let size = ENVELOPE_BYTES + count * record.payload_bytes();
            assert_eq!(payload(std::iter::repeat_n(&record, count)).len(), size);
        }
    }

    #[test]
    fn unreadable_record_error_names_what_is_missing() {
        for (field, bad) in [
            ("SequenceNumber", json!("x")),
            ("Keys", json!([])),
            ("ApproximateCreationDateTime", json!("yesterday")),
            ("ApproximateCreationDateTime", json!(-1)),
        ] {
            let mut record = of_get_records();
            record["dynamodb"][field] = bad;
            let error = Record::from_stream(record, ARN).unwrap_err();
            assert_eq!(error.to_string(), format!("stream record without a usable dynamodb.{field}"));
        }
        assert_eq!(Record::from_stream(json!("?"), ARN), Err(UnreadableRecord("dynamodb")));
    }
}
