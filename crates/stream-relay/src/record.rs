//! The reading of one stream record: a message, something else, or unreadable.
//!
//! The mapping's filter passes only inserts of outbox rows, but it is configuration, so everything is checked again.

use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::str::FromStr;

use aws_sdk_eventbridge::primitives::{DateTime, DateTimeFormat};
use daybook_stream_batch::SequenceNumber;
use daybook_table::trace::is_trace_header;
use daybook_table::{AggregateKey, DeadlineItem, DueDeadline, OutboxItem, attributes, keys};
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
}

#[derive(Debug)]
pub(crate) enum Content {
    Outbox(Box<OutboxRow>),
    /// New events of an aggregate, up to this number: its metadata has changed.
    Changed(AggregateKey, u64),
    /// A deadline that is pending, and was set shortly before its time.
    Soon(DueDeadline),
    /// Another item, or a row that was changed or deleted, for example by its TTL.
    SomethingElse,
    Unreadable(Unreadable),
}

#[derive(Debug)]
pub(crate) struct OutboxRow {
    pub(crate) item: OutboxItem,
    /// The aggregate as `<type>/<id>`, the form in an event's `Resources`.
    pub(crate) aggregate: String,
    pub(crate) occurred_at: DateTime,
}

#[derive(Debug)]
pub(crate) struct Unreadable {
    pub(crate) pk: Option<String>,
    pub(crate) reason: String,
}

pub(crate) fn read(raw: &RawValue) -> (Coordinates, Content) {
    NewRow::read(raw.get()).unwrap_or_else(|| read_any(raw))
}

/// The record of an inserted row such as `OUTBOX#000000000042#0`, as almost every record is, read in one pass. [`read_any`] reads
/// all records that do not fit, for example one with an unknown member, and decides what is unreadable. Members whose names begin
/// with an underscore, which `rename_all` drops, are not used: they only have to be known.
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
    _approximate_creation_date_time: Option<f64>,
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

fn read_any(raw: &RawValue) -> (Coordinates, Content) {
    let mut record: Value = match serde_json::from_str(raw.get()) {
        Ok(record) => record,
        Err(error) => {
            let unreadable = Unreadable { pk: None, reason: error.to_string() };
            return (Coordinates::default(), Content::Unreadable(unreadable));
        }
    };
    let coordinates = coordinates(&record);
    let content = if let Some(aggregate) = changed_aggregate(&record) {
        let last = record["dynamodb"]["NewImage"][attributes::CURRENT_SEQ_NUM]["N"].as_str();
        Content::Changed(aggregate, last.and_then(|last| last.parse().ok()).unwrap_or_default())
    } else if let Some(deadline) = soon(&mut record) {
        Content::Soon(deadline)
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
    }
}

/// The aggregate whose metadata the record is about, unless the metadata were deleted. No view has events of a reserved type.
fn changed_aggregate(record: &Value) -> Option<AggregateKey> {
    let is_metadata = key(record, attributes::SK) == Some(keys::METADATA) && record["eventName"] != "REMOVE";
    let aggregate = if is_metadata { keys::aggregate_of_pk(key(record, attributes::PK)?) } else { None };
    aggregate.filter(|aggregate| !aggregate.is_reserved())
}

/// The deadline of a row that the stream must pass on, unless it was deleted. The tick finds one whose row cannot be read here.
fn soon(record: &mut Value) -> Option<DueDeadline> {
    let is_deadline = key(record, attributes::SK)?.starts_with(keys::DEADLINE_PREFIX);
    if !is_deadline || record["eventName"] == "REMOVE" {
        return None;
    }
    let image = record.pointer_mut("/dynamodb/NewImage").map(Value::take)?;
    let image: serde_dynamo::Item = serde_json::from_value(image).ok()?;
    let row: DeadlineItem = serde_dynamo::from_item(image).ok()?;
    let (due, key) = (row.due.parse().ok()?, keys::aggregate_of_pk(&row.pk)?);
    row.soon?.then(|| DueDeadline { due, key, name: row.name().to_owned() })
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
mod tests;
