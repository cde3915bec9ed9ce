//! Records of the table's stream.

use serde_json::{Value, json};

use crate::row::{Item, notation};

/// The stream of [`TABLE`](crate::table::TABLE).
pub const STREAM_ARN: &str = "arn:aws:dynamodb:us-east-1:000000000000:table/daybook-test/stream/1";

/// The stream record of a new row.
pub fn inserted(sequence_number: u64, row: &Item) -> Value {
    insert(sequence_number, notation(row))
}

/// The stream record of a new row, given in DynamoDB's notation.
pub fn insert(sequence_number: u64, image: Value) -> Value {
    json!({
        "eventID": format!("event-{sequence_number}"), "eventName": "INSERT", "eventVersion": "1.1",
        "eventSource": "aws:dynamodb", "awsRegion": "us-east-1", "eventSourceARN": STREAM_ARN,
        "dynamodb": {
            "ApproximateCreationDateTime": 1_700_000_000.0, "Keys": {"pk": image["pk"], "sk": image["sk"]},
            "NewImage": image, "SequenceNumber": sequence_number.to_string(), "SizeBytes": 26,
            "StreamViewType": "NEW_IMAGE"
        }
    })
}
