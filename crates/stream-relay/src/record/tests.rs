use serde_json::json;

use super::*;

fn insert() -> Value {
    json!({
        "eventID": "e1", "eventName": "INSERT", "eventVersion": "1.1", "eventSource": "aws:dynamodb",
        "awsRegion": "us-east-1", "eventSourceARN": "arn:stream",
        "dynamodb": {
            "ApproximateCreationDateTime": 1_700_000_000.0,
            "Keys": {"pk": {"S": "AGGREGATE#todo#1"}, "sk": {"S": "OUTBOX#000000000001#0"}},
            "NewImage": {
                "pk": {"S": "AGGREGATE#todo#1"}, "sk": {"S": "OUTBOX#000000000001#0"},
                "messageId": {"S": "01ARZ3NDEKTSV4RRFFQ69G5FAV"}, "messageType": {"S": "TodoCreated"},
                "messageSeq": {"N": "1"}, "detail": {"S": "{\"data\": 1.0}"},
                "occurredAt": {"S": "2026-11-21T01:02:03.456Z"}, "seqNum": {"N": "1"}, "ttl": {"N": "1"},
                "sum": {"B": "AQIDBAUGBwg="},
            },
            "SequenceNumber": "111", "SizeBytes": 26, "StreamViewType": "NEW_IMAGE",
        },
    })
}

fn with(pointer: &str, value: Value) -> Value {
    let mut record = insert();
    *record.pointer_mut(pointer).unwrap() = value;
    record
}

fn without(parent: &str, member: &str) -> Value {
    let mut record = insert();
    record.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(member).unwrap();
    record
}

/// The record with a member that is unknown to the relay.
fn with_other(parent: &str, value: Value) -> Value {
    let mut record = insert();
    record.pointer_mut(parent).unwrap()["other"] = value;
    record
}

/// Reads a record, which must be the same whichever way it is read.
fn read(record: &Value) -> (Coordinates, Content) {
    read_text(&record.to_string())
}

fn read_text(record: &str) -> (Coordinates, Content) {
    let raw = RawValue::from_string(record.to_owned()).unwrap();
    let read = super::read(&raw);
    assert_eq!(format!("{read:?}"), format!("{:?}", read_any(&raw)));
    read
}

fn unreadable(record: &Value) -> Unreadable {
    match read(record).1 {
        Content::Unreadable(unreadable) => unreadable,
        other => panic!("{other:?} of {record}"),
    }
}

#[test]
fn a_new_outbox_row_is_a_message() {
    let (coordinates, content) = read(&insert());
    assert_eq!(coordinates.sequence_number.as_ref().map(SequenceNumber::as_str), Some("111"));
    assert_eq!(
        (coordinates.event_id.as_deref(), coordinates.event_source_arn.as_deref()),
        (Some("e1"), Some("arn:stream"))
    );
    let Content::Outbox(row) = content else { panic!("{content:?}") };
    assert_eq!(row.aggregate, "todo/1");
    assert_eq!((row.item.message_seq, row.item.detail.as_str()), (1, r#"{"data": 1.0}"#));
    assert_eq!(row.occurred_at.to_millis().unwrap(), 1_795_222_923_456);
}

#[test]
fn new_outbox_row_is_read_in_one_pass() {
    let mut header = insert();
    header["dynamodb"]["NewImage"]["traceHeader"] = json!({"S": "Root=1-6b00bd67-0000000000000000000000b5"});
    let mut odd_header = insert();
    odd_header["dynamodb"]["NewImage"]["traceHeader"] = json!({"S": "odd"});
    for record in [
        insert(),
        header,
        odd_header,
        with("/dynamodb/SequenceNumber", json!("one")),
        with("/dynamodb/ApproximateCreationDateTime", json!(1_700_000_000)),
        without("/dynamodb", "ApproximateCreationDateTime"),
        without("/dynamodb/NewImage", "sum"),
        without("", "eventID"),
        with("/eventSourceARN", json!(null)),
        with("/dynamodb/NewImage/detail/S", json!("{\"text\": \"\u{e9}\n\"}")),
    ] {
        assert!(matches!(read(&record).1, Content::Outbox(_)), "{record}");
        assert!(NewRow::read(&record.to_string()).is_some(), "{record}");
    }
}

#[test]
fn every_attribute_of_a_new_row_is_read_in_one_pass() {
    let mut record = insert();
    record["dynamodb"]["NewImage"]["traceHeader"] = json!({"S": "Root=1-6b00bd67-0000000000000000000000b5"});
    let Content::Outbox(row) = read(&record).1 else { panic!("{record}") };
    let item: serde_dynamo::Item = serde_dynamo::to_item(&row.item).unwrap();
    let mut image = serde_json::to_value(item).unwrap();
    image[attributes::CHECKSUM] = json!({"B": "AQIDBAUGBwg="});
    assert_eq!(image.as_object().unwrap().len(), 11);
    assert!(NewRow::read(&with("/dynamodb/NewImage", image).to_string()).is_some());
}

#[test]
fn record_with_anything_unexpected_is_not_read_in_one_pass() {
    let mut array = insert();
    array["dynamodb"]["NewImage"]["traceHeader"] = json!(["Root=1-6b00bd67-0000000000000000000000b5"]);
    for record in [
        array,
        with_other("", json!({"type": "Service"})),
        with_other("/dynamodb", json!(1)),
        with_other("/dynamodb/Keys", json!({"N": "1"})),
        with_other("/dynamodb/NewImage", json!({"BOOL": true})),
        with("/awsRegion", json!(7)),
        with("/dynamodb/SizeBytes", json!("26")),
    ] {
        assert!(matches!(read(&record).1, Content::Outbox(_)), "{record}");
        assert!(NewRow::read(&record.to_string()).is_none(), "{record}");
    }
    let two_types = with("/dynamodb/NewImage/seqNum", json!({"N": "1", "S": "1"}));
    for record in [two_types, with("/eventName", json!("MODIFY")), with("/dynamodb/Keys/sk/S", json!("EVENT#1"))] {
        assert!(NewRow::read(&record.to_string()).is_none(), "{record}");
    }
}

#[test]
fn record_that_is_unreadable_in_a_part_that_is_not_needed_is_unreadable() {
    for parent in ["", "/dynamodb", "/dynamodb/Keys", "/dynamodb/NewImage"] {
        let record = with_other(parent, json!("?")).to_string();
        for value in [r#""\ud800""#, "1e999"] {
            let content = read_text(&record.replace(r#""?""#, value)).1;
            assert!(matches!(content, Content::Unreadable(_)), "{value} in {parent}");
        }
    }
    for name in ["/awsRegion", "/eventSource", "/eventVersion", "/dynamodb/StreamViewType", "/dynamodb/Keys/pk/S"] {
        let record = with(name, json!("?")).to_string();
        let content = read_text(&record.replace(r#""?""#, r#""\ud800""#)).1;
        assert!(matches!(content, Content::Unreadable(_)), "{name}");
    }
    let checksum = |value| with("/dynamodb/NewImage/sum", value);
    for record in [with_other("/dynamodb/NewImage", json!(7)), checksum(json!(null)), checksum(json!({"B": "?"}))] {
        let reason = unreadable(&record).reason;
        assert!(reason.starts_with("NewImage: "), "{reason}");
    }
}

/// The members of an object in this order, which is that of the struct that it is read into.
fn array(object: &Value, members: &[&str]) -> Value {
    members.iter().map(|&member| object[member].clone()).collect()
}

#[test]
fn array_in_place_of_an_object_is_unreadable() {
    let record = insert();
    let change = ["Keys", "NewImage", "SequenceNumber", "ApproximateCreationDateTime", "SizeBytes", "StreamViewType"];
    let image = [
        "sum",
        "pk",
        "sk",
        "messageId",
        "messageType",
        "messageSeq",
        "detail",
        "occurredAt",
        "seqNum",
        "ttl",
        "traceHeader",
    ];
    let whole = ["eventID", "eventName", "eventSourceARN", "dynamodb", "awsRegion", "eventSource", "eventVersion"];
    for array in [
        array(&record, &whole),
        with("/dynamodb", array(&record["dynamodb"], &change)),
        with("/dynamodb/NewImage", array(&record["dynamodb"]["NewImage"], &image)),
    ] {
        unreadable(&array);
    }
    let keys = with("/dynamodb/Keys", array(&record["dynamodb"]["Keys"], &["pk", "sk"]));
    assert!(matches!(read(&keys).1, Content::Outbox(_)), "the keys of the image count");
    assert!(NewRow::read(&keys.to_string()).is_none());
}

#[test]
fn change_of_metadata_names_its_aggregate() {
    for name in ["INSERT", "MODIFY"] {
        let mut record = with("/dynamodb/Keys/sk/S", json!("#METADATA"));
        record["eventName"] = json!(name);
        let changed = |record: &Value| match read(record).1 {
            Content::Changed(aggregate, last) => (aggregate.to_string(), last),
            other => panic!("{other:?} of {record}"),
        };
        assert_eq!(changed(&record), ("todo/1".to_owned(), 0));
        record["dynamodb"]["NewImage"]["currentSeqNum"] = json!({"N": "7"});
        assert_eq!(changed(&record), ("todo/1".to_owned(), 7));
    }
    let mut deleted = with("/dynamodb/Keys/sk/S", json!("#METADATA"));
    deleted["eventName"] = json!("REMOVE");
    assert!(matches!(read(&deleted).1, Content::SomethingElse));
    let mut canary = with("/dynamodb/Keys/sk/S", json!("#METADATA"));
    canary["dynamodb"]["Keys"]["pk"]["S"] = json!("AGGREGATE#__canary#deployments");
    assert!(matches!(read(&canary).1, Content::SomethingElse), "no view has events of a reserved type");
}

#[test]
fn other_items_and_changes_are_something_else() {
    let sks = ["EVENT#000000000001", "#SNAPSHOT", "SNAPSHOT#000000000001", "IDEMPOTENCY#k"];
    let records = sks.map(|sk| with("/dynamodb/Keys/sk/S", json!(sk))).into_iter().chain([
        with("/eventName", json!("MODIFY")),
        with("/eventName", json!("REMOVE")),
        // Without an image, whatever the name of the event.
        json!({"eventName": null, "dynamodb": {"Keys": {"sk": {"S": "EVENT#000000000001"}}}}),
    ]);
    for record in records {
        assert!(matches!(read(&record).1, Content::SomethingElse), "{record}");
    }
}

#[test]
fn possible_message_that_cannot_be_read_is_unreadable() {
    for (record, reason) in [
        (with("/eventName", json!("UPSERT")), "eventName is \"UPSERT\""),
        (without("", "eventName"), "eventName is null"),
        (without("/dynamodb", "NewImage"), "there is no NewImage"),
        (without("/dynamodb/NewImage", "messageId"), "NewImage: missing field `messageId`"),
        (with("/dynamodb/NewImage/messageSeq", json!({"S": "one"})), "NewImage: "),
        (with("/dynamodb/NewImage/ttl", json!(7)), "NewImage: "),
        (with("/dynamodb/NewImage/occurredAt/S", json!("yesterday")), "occurredAt is \"yesterday\""),
        (with("/dynamodb/NewImage/pk/S", json!("todo/1")), "pk is \"todo/1\""),
    ] {
        let unreadable = unreadable(&record);
        assert!(unreadable.reason.starts_with(reason), "{}", unreadable.reason);
        assert_eq!(unreadable.pk.as_deref(), Some("AGGREGATE#todo#1"));
    }
    for record in [json!(null), json!("odd"), json!([]), json!({}), json!({"dynamodb": 7})] {
        assert_eq!(unreadable(&record).pk, None);
    }
}

#[test]
fn record_with_invalid_unicode_is_unreadable() {
    let (coordinates, content) = super::read(&RawValue::from_string(r#"{"eventID": "\ud800"}"#.to_owned()).unwrap());
    assert!(coordinates.sequence_number.is_none());
    assert!(matches!(content, Content::Unreadable(_)));
}

#[test]
fn invalid_sequence_number_counts_as_absent() {
    for number in [json!(""), json!("one"), json!(111), json!(null)] {
        assert!(read(&with("/dynamodb/SequenceNumber", number)).0.sequence_number.is_none());
    }
}
