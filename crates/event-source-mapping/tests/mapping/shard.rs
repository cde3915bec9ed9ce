//! Records of a generated shard.

use std::time::Duration;

use daybook_event_source_mapping::Record;
use serde_json::json;

/// The time of the shard's first record. The others follow, one per second.
pub(crate) const START: Duration = Duration::from_secs(1_700_000_000);

/// The first sequence number: soon after it, the number of digits changes, so text order and number order differ.
const FIRST_NUMBER: usize = 95;

/// The ARN of the stream.
pub(crate) const STREAM: &str = "arn:aws:dynamodb:eu-west-1:000000000000:table/daybook/stream/2023-11-14T22:13:20.000";

/// The record at an index of the shard, of an item, with additional bytes.
pub(crate) fn record_of(place: usize, item: usize, bytes: usize) -> Record {
    let record = json!({
        "eventName": "INSERT",
        "dynamodb": {
            "SequenceNumber": number(place),
            "Keys": {"pk": {"S": format!("item-{item}")}},
            "ApproximateCreationDateTime": START.as_secs() + u64::try_from(place).unwrap(),
            "NewImage": {"data": {"S": "x".repeat(bytes)}},
        }
    });
    Record::from_stream(record, STREAM).unwrap()
}

/// The sequence number of the record at an index.
pub(crate) fn number(place: usize) -> String {
    (FIRST_NUMBER + place).to_string()
}

/// The index of a record in the shard.
pub(crate) fn place(record: &Record) -> usize {
    record.sequence_number().as_str().parse::<usize>().unwrap() - FIRST_NUMBER
}

/// A response that reports the records at these indexes as failed.
pub(crate) fn failures(places: impl IntoIterator<Item = usize>) -> String {
    let failures: Vec<_> = places.into_iter().map(|place| json!({"itemIdentifier": number(place)})).collect();
    json!({"batchItemFailures": failures}).to_string()
}
