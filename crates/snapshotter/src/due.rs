//! The aggregates of a batch that are due for a snapshot.

use std::collections::BTreeMap;

use aws_lambda_events::dynamodb::EventRecord;
use daybook_stream_batch::SequenceNumber;
use daybook_table::{AggregateKey, attributes, keys};
use serde_json::Value;
use serde_json::value::RawValue;

#[derive(Default)]
pub(crate) struct Due {
    /// The aggregates that are due, each with the lowest sequence number of its records; `None` when a record has
    /// none.
    pub(crate) aggregates: BTreeMap<AggregateKey, Option<SequenceNumber>>,
    /// The records that cannot be read: the sequence number, if there is one, and the error. If such a record was due,
    /// the next due event of its aggregate leads to a snapshot.
    pub(crate) unreadable: Vec<(Option<SequenceNumber>, serde_json::Error)>,
}

impl Due {
    pub(crate) fn read(records: &[Box<RawValue>]) -> Self {
        let mut due = Self::default();
        for raw in records {
            match serde_json::from_str(raw.get()) {
                Ok(record) => due.add(&record),
                Err(error) => {
                    let record: Value = serde_json::from_str(raw.get()).unwrap_or_default();
                    let number = record["dynamodb"]["SequenceNumber"].as_str().and_then(SequenceNumber::parse);
                    due.unreadable.push((number, error));
                }
            }
        }
        due
    }

    fn add(&mut self, record: &EventRecord) {
        if let Some(key) = due_aggregate(record) {
            let number = record.change.sequence_number.as_deref().and_then(SequenceNumber::parse);
            // `None`, a record without a number, is the lowest: the whole batch is then retried.
            let first = self.aggregates.entry(key).or_insert_with(|| number.clone());
            *first = first.take().min(number);
        }
    }
}

/// The aggregate that a record makes due, if any. The filter of the event source mapping passes only such records, but
/// it is configuration, so this function checks every condition again.
fn due_aggregate(record: &EventRecord) -> Option<AggregateKey> {
    let image = record.change.new_image.inner();
    let text = |name| match image.get(name)? {
        serde_dynamo::AttributeValue::S(text) => Some(text.as_str()),
        _ => None,
    };
    let is_event = record.event_name == "INSERT" && text(attributes::SK)?.starts_with(keys::EVENT_PREFIX);
    let is_due = matches!(image.get(attributes::SNAPSHOT_DUE), Some(serde_dynamo::AttributeValue::Bool(true)));
    (is_event && is_due).then(|| keys::aggregate_of_pk(text(attributes::PK)?)).flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn record(sequence_number: &str, id: &str, event: u64) -> Value {
        let keys = json!({"pk": {"S": format!("AGGREGATE#account#{id}")}, "sk": {"S": format!("EVENT#{event:012}")}});
        let mut image = keys.clone();
        image["snapshotDue"] = json!({"BOOL": true});
        json!({
            "eventID": "1", "eventName": "INSERT", "eventVersion": "1.1", "eventSource": "aws:dynamodb",
            "awsRegion": "eu-west-1", "eventSourceARN": "arn:aws:dynamodb:eu-west-1:000000000000:table/t/stream/1",
            "dynamodb": {
                "ApproximateCreationDateTime": 1_700_000_000, "Keys": keys, "NewImage": image,
                "SequenceNumber": sequence_number, "SizeBytes": 26, "StreamViewType": "NEW_IMAGE"
            }
        })
    }

    fn due(records: &[Value]) -> Vec<(String, Option<String>)> {
        let raw: Vec<_> = records.iter().map(|record| RawValue::from_string(record.to_string()).unwrap()).collect();
        let text = |number: SequenceNumber| number.as_str().to_owned();
        Due::read(&raw).aggregates.into_iter().map(|(key, first)| (key.to_string(), first.map(text))).collect()
    }

    #[test]
    fn aggregate_with_several_records_is_due_once_from_its_first_record() {
        let records = [record("12", "a", 200), record("9", "a", 100), record("11", "b", 100), record("9", "a", 100)];
        assert_eq!(
            due(&records),
            [("account/a".to_owned(), Some("9".to_owned())), ("account/b".to_owned(), Some("11".to_owned()))]
        );
    }

    #[test]
    fn record_of_a_new_event_marked_as_due_is_the_only_one_that_makes_an_aggregate_due() {
        let mut others = vec![json!(null), json!({}), json!("odd")];
        for (pointer, value) in [
            ("/eventName", json!("MODIFY")),
            ("/eventName", json!("REMOVE")),
            ("/dynamodb/NewImage/sk/S", json!("#SNAPSHOT")),
            ("/dynamodb/NewImage/sk/S", json!("SNAPSHOT#000000000100")),
            ("/dynamodb/NewImage/sk/S", json!("OUTBOX#000000000100#0")),
            ("/dynamodb/NewImage/snapshotDue/BOOL", json!(false)),
            ("/dynamodb/NewImage/snapshotDue", json!({"S": "true"})),
            ("/dynamodb/NewImage/pk/S", json!("account/a")),
            ("/dynamodb/NewImage", json!(null)),
        ] {
            let mut other = record("1", "a", 100);
            *other.pointer_mut(pointer).unwrap() = value;
            others.push(other);
        }
        assert_eq!(due(&others), []);
    }

    #[test]
    fn aggregate_with_a_record_without_a_sequence_number_has_none() {
        let mut odd = record("5", "a", 100);
        odd["dynamodb"]["SequenceNumber"] = json!(null);
        assert_eq!(due(&[record("4", "a", 100), odd]), [("account/a".to_owned(), None)]);
    }
}
