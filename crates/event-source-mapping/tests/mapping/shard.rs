//! Records of a made-up shard.

use std::time::Duration;

use daybook_event_source_mapping::Record;
use serde_json::json;

/// When the shard's first record is written. The others follow, one a second.
pub(crate) const START: Duration = Duration::from_secs(1_700_000_000);

/// Sequence numbers begin below a change of length, where text order and number order differ.
const FIRST_NUMBER: usize = 95;

/// The ARN of its stream.
pub(crate) const STREAM: &str = "arn:aws:dynamodb:eu-west-1:000000000000:table/daybook/stream/2023-11-14T22:13:20.000";

/// The record at that place, of that item, with so many bytes in it.
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

/// The sequence number of the record at that place.
pub(crate) fn number(place: usize) -> String {
    (FIRST_NUMBER + place).to_string()
}

/// Where in the shard a record is.
pub(crate) fn place(record: &Record) -> usize {
    record.sequence_number().as_str().parse::<usize>().unwrap() - FIRST_NUMBER
}

/// A response that names the records at these places.
pub(crate) fn failures(places: impl IntoIterator<Item = usize>) -> String {
    let failures: Vec<_> = places.into_iter().map(|place| json!({"itemIdentifier": number(place)})).collect();
    json!({"batchItemFailures": failures}).to_string()
}
