//! The reading of one stream record: a message, something else, or unreadable.
//!
//! The mapping's filter passes only inserts of outbox rows, but it is configuration, so everything is checked again.

use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use aws_sdk_eventbridge::primitives::{DateTime, DateTimeFormat};
use daybook_stream_batch::SequenceNumber;
use daybook_table::trace::is_trace_header;
use daybook_table::{AggregateKey, OutboxItem, attributes, keys};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_dynamo::AttributeValue;
use serde_json::Value;
use serde_json::value::RawValue;

/// The position of a record in the stream. Lambda does not report the shard.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Coordinates {
    #[serde(rename = "eventSourceARN")]
    pub(crate) event_source_arn: Option<String>,
    #[serde(rename = "eventID")]
    pub(crate) event_id: Option<String>,
    pub(crate) sequence_number: Option<SequenceNumber>,
    /// When the row was written, to the second or better.
    #[serde(skip)]
    pub(crate) created_at: Option<SystemTime>,
}

/// The contents of a record, as far as the relay needs them.
#[derive(Debug)]
pub(crate) enum Content {
    /// A new outbox row.
    Outbox(Box<OutboxRow>),
    /// New events of an aggregate, up to this number: its metadata moved.
    Moved(AggregateKey, u64),
    /// Another item, or a row that was changed or deleted, for example by its TTL.
    SomethingElse,
    /// A record that cannot be read and may be a new outbox row.
    Unreadable(Unreadable),
}

/// An outbox row that can be sent.
#[derive(Debug)]
pub(crate) struct OutboxRow {
    pub(crate) item: OutboxItem,
    /// The aggregate as `<type>/<id>`, the form in an event's `Resources`.
    pub(crate) aggregate: String,
    pub(crate) occurred_at: DateTime,
}

/// The known parts of a record that cannot be read.
#[derive(Debug)]
pub(crate) struct Unreadable {
    /// The partition, if the record has one.
    pub(crate) pk: Option<String>,
    pub(crate) reason: String,
}

/// Reads a record.
pub(crate) fn read(raw: &RawValue) -> (Coordinates, Content) {
    NewRow::read(raw.get()).unwrap_or_else(|| read_any(raw))
}

/// A record of a new outbox row without anything unexpected: almost every record that the mapping's filter passes. It is read
/// in one pass. All other records, and those that cannot be read like this, are left to [`read_any`], which decides what is
/// unreadable. So nothing is skipped here: every member and every attribute has to be known and to have its form. A leading
/// underscore, which `rename_all` drops, marks those that are not needed.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NewRow<'a> {
    #[serde(rename = "eventID")]
    event_id: Option<String>,
    event_name: &'a str,
    #[serde(rename = "eventSourceARN")]
    event_source_arn: Option<String>,
    #[serde(borrow)]
    dynamodb: Object<NewImage<'a>>,
    _aws_region: Option<&'a str>,
    _event_source: Option<&'a str>,
    _event_version: Option<&'a str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct NewImage<'a> {
    #[serde(borrow)]
    keys: Object<RowKeys<'a>>,
    new_image: Object<RowImage>,
    sequence_number: Option<&'a str>,
    approximate_creation_date_time: Option<f64>,
    _size_bytes: Option<u64>,
    _stream_view_type: Option<&'a str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RowKeys<'a> {
    #[serde(borrow)]
    _pk: BorrowedText<'a>,
    #[serde(borrow)]
    sk: BorrowedText<'a>,
}

/// The attributes of an [`OutboxItem`], and the checksum that the store adds to them.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RowImage {
    #[serde(default, deserialize_with = "attribute")]
    _sum: Option<AttributeValue>,
    pk: Text,
    sk: Text,
    message_id: Text,
    message_type: Text,
    message_seq: Number<u64>,
    detail: Text,
    occurred_at: Text,
    seq_num: Number<u64>,
    ttl: Number<i64>,
    trace_header: Option<Text>,
}

/// A struct that is read from a JSON object only. Serde would read it from an array of its fields too.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Object)
    }
}

/// An attribute of one type. It is an enum, which serde reads from an object with one member.
#[derive(Deserialize)]
enum BorrowedText<'a> {
    S(&'a str),
}

#[derive(Deserialize)]
enum Text {
    S(String),
}

#[derive(Deserialize)]
enum Number<N: FromStr<Err: Display>> {
    #[serde(deserialize_with = "parsed")]
    N(N),
}

fn parsed<'de, D: Deserializer<'de>, N: FromStr<Err: Display>>(deserializer: D) -> Result<N, D::Error> {
    <&str>::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}

/// An attribute, which is never null, although it may be absent.
fn attribute<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<AttributeValue>, D::Error> {
    AttributeValue::deserialize(deserializer).map(Some)
}

impl NewRow<'_> {
    fn read(record: &str) -> Option<(Coordinates, Content)> {
        let Object(NewRow { event_id, event_name, event_source_arn, dynamodb: Object(change), .. }) =
            serde_json::from_str(record).ok()?;
        let BorrowedText::S(sk) = change.keys.0.sk;
        if event_name != "INSERT" || !sk.starts_with(keys::OUTBOX_PREFIX) {
            return None;
        }
        let coordinates = Coordinates {
            event_source_arn,
            event_id,
            sequence_number: change.sequence_number.and_then(SequenceNumber::parse),
            created_at: change.approximate_creation_date_time.and_then(seconds_since_1970),
        };
        let row = OutboxRow::of(change.new_image.0.into()).ok()?;
        Some((coordinates, Content::Outbox(Box::new(row))))
    }
}

impl From<RowImage> for OutboxItem {
    fn from(image: RowImage) -> Self {
        let text = |Text::S(text)| text;
        let (Number::N(message_seq), Number::N(seq_num), Number::N(ttl)) =
            (image.message_seq, image.seq_num, image.ttl);
        Self {
            pk: text(image.pk),
            sk: text(image.sk),
            message_id: text(image.message_id),
            message_type: text(image.message_type),
            message_seq,
            detail: text(image.detail),
            occurred_at: text(image.occurred_at),
            seq_num,
            ttl,
            trace_header: image.trace_header.map(text).filter(|header| is_trace_header(header)),
        }
    }
}

/// Reads a record of any form.
fn read_any(raw: &RawValue) -> (Coordinates, Content) {
    let mut record: Value = match serde_json::from_str(raw.get()) {
        Ok(record) => record,
        Err(error) => {
            let unreadable = Unreadable { pk: None, reason: error.to_string() };
            return (Coordinates::default(), Content::Unreadable(unreadable));
        }
    };
    let coordinates = coordinates(&record);
    let content = if let Some(aggregate) = moved_aggregate(&record) {
        let last = record["dynamodb"]["NewImage"][attributes::CURRENT_SEQ_NUM]["N"].as_str();
        Content::Moved(aggregate, last.and_then(|last| last.parse().ok()).unwrap_or_default())
    } else if is_something_else(&record) {
        Content::SomethingElse
    } else {
        let pk = key(&record, attributes::PK).map(str::to_owned);
        match outbox_row(&mut record) {
            Ok(row) => Content::Outbox(Box::new(row)),
            Err(reason) => Content::Unreadable(Unreadable { pk, reason }),
        }
    };
    (coordinates, content)
}

fn coordinates(record: &Value) -> Coordinates {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    Coordinates {
        event_source_arn: text(&record["eventSourceARN"]),
        event_id: text(&record["eventID"]),
        sequence_number: record["dynamodb"]["SequenceNumber"].as_str().and_then(SequenceNumber::parse),
        created_at: record["dynamodb"]["ApproximateCreationDateTime"].as_f64().and_then(seconds_since_1970),
    }
}

fn seconds_since_1970(seconds: f64) -> Option<SystemTime> {
    SystemTime::UNIX_EPOCH.checked_add(Duration::try_from_secs_f64(seconds).ok()?)
}

/// The aggregate whose metadata the record is about, unless the metadata were deleted. No view has events of a reserved type.
fn moved_aggregate(record: &Value) -> Option<AggregateKey> {
    let is_metadata = key(record, attributes::SK) == Some(keys::METADATA) && record["eventName"] != "REMOVE";
    let aggregate = if is_metadata { AggregateKey::from_pk(key(record, attributes::PK)?) } else { None };
    aggregate.filter(|aggregate| !aggregate.is_reserved())
}

/// Whether the record is certainly not a new outbox row.
fn is_something_else(record: &Value) -> bool {
    matches!(record["eventName"].as_str(), Some("MODIFY" | "REMOVE"))
        || key(record, attributes::SK).is_some_and(|sk| !sk.starts_with(keys::OUTBOX_PREFIX))
}

fn key<'a>(record: &'a Value, name: &str) -> Option<&'a str> {
    let change = &record["dynamodb"];
    change["Keys"][name]["S"].as_str().or_else(|| change["NewImage"][name]["S"].as_str())
}

fn outbox_row(record: &mut Value) -> Result<OutboxRow, String> {
    if record["eventName"] != "INSERT" {
        return Err(format!("eventName is {}", record["eventName"]));
    }
    let mut image = record.pointer_mut("/dynamodb/NewImage").map(Value::take).ok_or("there is no NewImage")?;
    drop_invalid_trace_header(&mut image);
    let image: serde_dynamo::Item = serde_json::from_value(image).map_err(|error| format!("NewImage: {error}"))?;
    let item: OutboxItem = serde_dynamo::from_item(image).map_err(|error| format!("NewImage: {error}"))?;
    OutboxRow::of(item)
}

impl OutboxRow {
    /// The row of an item, or the reason why it cannot be sent.
    pub(crate) fn of(item: OutboxItem) -> Result<Self, String> {
        let (aggregate_type, id) = keys::type_and_id(&item.pk).ok_or_else(|| format!("pk is {:?}", item.pk))?;
        let aggregate = [aggregate_type, "/", id].concat();
        let occurred_at = DateTime::from_str(&item.occurred_at, DateTimeFormat::DateTimeWithOffset)
            .map_err(|_| format!("occurredAt is {:?}", item.occurred_at))?;
        Ok(Self { item, aggregate, occurred_at })
    }
}

/// Removes an attribute that holds no valid trace header: tracing never prevents a message from being sent.
fn drop_invalid_trace_header(image: &mut Value) {
    if !image[attributes::TRACE_HEADER]["S"].as_str().is_some_and(is_trace_header)
        && let Some(image) = image.as_object_mut()
    {
        image.remove(attributes::TRACE_HEADER);
    }
}

#[cfg(test)]
mod tests {
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
        let change =
            ["Keys", "NewImage", "SequenceNumber", "ApproximateCreationDateTime", "SizeBytes", "StreamViewType"];
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
            let moved = |record: &Value| match read(record).1 {
                Content::Moved(aggregate, last) => (aggregate.to_string(), last),
                other => panic!("{other:?} of {record}"),
            };
            assert_eq!(moved(&record), ("todo/1".to_owned(), 0));
            record["dynamodb"]["NewImage"]["currentSeqNum"] = json!({"N": "7"});
            assert_eq!(moved(&record), ("todo/1".to_owned(), 7));
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
        let (coordinates, content) =
            super::read(&RawValue::from_string(r#"{"eventID": "\ud800"}"#.to_owned()).unwrap());
        assert!(coordinates.sequence_number.is_none());
        assert!(matches!(content, Content::Unreadable(_)));
    }

    #[test]
    fn invalid_sequence_number_counts_as_absent() {
        for number in [json!(""), json!("one"), json!(111), json!(null)] {
            assert!(read(&with("/dynamodb/SequenceNumber", number)).0.sequence_number.is_none());
        }
    }
}
