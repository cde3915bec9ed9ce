//! The lines of a history file. docs/operating.md describes them.

use daybook_decider::record::timestamp;
use daybook_decider::{Json, Meta, RecordedEvent};
use daybook_table::AggregateKey;
use daybook_table::keys::{MAX_ID, is_id};
use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};
use ulid::Ulid;

/// The version of the format that this code writes, and the latest that it reads.
pub(crate) const FORMAT_VERSION: u32 = 1;

/// A line that was read.
#[derive(Debug, PartialEq)]
pub(crate) enum Line {
    /// The first line of a file that `export` wrote.
    Header,
    Event(Box<EventLine>),
    /// The lines of this aggregate before it are not all of its events.
    Incomplete(IncompleteLine),
    /// The last line of a file that `export` wrote.
    Summary(HistorySummary),
}

/// An event. What is left out is assigned at import.
#[derive(Debug, PartialEq)]
pub(crate) struct EventLine {
    pub(crate) key: AggregateKey,
    pub(crate) seq_num: Option<u64>,
    pub(crate) event_id: Option<Ulid>,
    pub(crate) event_type: String,
    pub(crate) event_version: Option<u32>,
    pub(crate) data: Json,
    pub(crate) meta: Meta,
    pub(crate) occurred_at: Option<Timestamp>,
    pub(crate) message_seq: Option<u64>,
}

/// An aggregate that could not be exported.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct IncompleteLine {
    pub(crate) aggregate_type: String,
    pub(crate) aggregate_id: String,
    pub(crate) reason: String,
}

/// The summary of a file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct HistorySummary {
    /// Aggregates with all their events.
    pub(crate) aggregates: u64,
    /// Lines of events, including those of incomplete aggregates.
    pub(crate) events: u64,
    pub(crate) incomplete: u64,
    /// SHA-256 of all bytes before the summary, in hexadecimal digits.
    pub(crate) sha256: String,
    /// How to export the remaining aggregates, if the export stopped early.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) go_on: Option<String>,
}

/// The first line of a file.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HeaderOut {
    pub(crate) daybook_history: u32,
}

/// The line of an incomplete aggregate.
#[derive(Serialize)]
pub(crate) struct IncompleteOut<'a> {
    pub(crate) incomplete: &'a IncompleteLine,
}

/// The last line of a file.
#[derive(Serialize)]
pub(crate) struct SummaryOut<'a> {
    pub(crate) summary: &'a HistorySummary,
}

/// The line of an event.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EventOut<'a> {
    aggregate_type: &'a str,
    aggregate_id: &'a str,
    seq_num: u64,
    event_id: String,
    event_type: &'a str,
    event_version: u32,
    data: &'a Json,
    meta: &'a Meta,
    occurred_at: String,
    message_seq: u64,
}

impl<'a> EventOut<'a> {
    pub(crate) fn new(key: &'a AggregateKey, event: &'a RecordedEvent) -> Self {
        Self {
            aggregate_type: &key.aggregate_type,
            aggregate_id: &key.id,
            seq_num: event.seq_num,
            event_id: event.event_id.to_string(),
            event_type: &event.event_type,
            event_version: event.event_version,
            data: &event.data,
            meta: &event.meta,
            occurred_at: timestamp(event.occurred_at),
            message_seq: event.message_seq,
        }
    }
}

/// The members that a line can have.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Members {
    daybook_history: Option<u32>,
    incomplete: Option<IncompleteLine>,
    summary: Option<HistorySummary>,
    aggregate_type: Option<String>,
    aggregate_id: Option<String>,
    seq_num: Option<u64>,
    event_id: Option<String>,
    event_type: Option<String>,
    event_version: Option<u32>,
    /// `null` is data too.
    #[serde(default, deserialize_with = "present")]
    data: Option<Json>,
    #[serde(default)]
    meta: MetaMembers,
    occurred_at: Option<String>,
    message_seq: Option<u64>,
}

/// The members of [`Meta`]. Others are an error, because the table could not store them.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct MetaMembers {
    actor: Option<String>,
    source_ip: Option<String>,
    correlation_id: Option<String>,
    causation_id: Option<String>,
    traceparent: Option<String>,
    trace_header: Option<String>,
}

impl Line {
    /// Reads a line.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let members: Members =
            serde_json::from_str(text).map_err(|error| error.to_string().replace(" at line 1 column", " at column"))?;
        match members {
            Members { daybook_history: Some(1..=FORMAT_VERSION), .. } => Ok(Self::Header),
            Members { daybook_history: Some(version), .. } => Err(format!(
                "the format version {version} is not known, this daybook reads up to {FORMAT_VERSION}; import with the \
                 daybook that exported the file"
            )),
            Members { incomplete: Some(incomplete), .. } => Ok(Self::Incomplete(incomplete)),
            Members { summary: Some(summary), .. } => Ok(Self::Summary(summary)),
            members => members.event().map(|event| Self::Event(Box::new(event))),
        }
    }
}

impl IncompleteLine {
    pub(crate) fn key(&self) -> AggregateKey {
        AggregateKey::new(&self.aggregate_type, &self.aggregate_id)
    }
}

impl Members {
    fn event(self) -> Result<EventLine, String> {
        let missing =
            |name: &str| format!("{name} is missing: a line needs aggregateType, aggregateId, eventType and data");
        let aggregate_type = self.aggregate_type.ok_or_else(|| missing("aggregateType"))?;
        let id = self.aggregate_id.ok_or_else(|| missing("aggregateId"))?;
        if !is_id(&id) {
            return Err(format!(
                "aggregateId cannot be {id:?}: an id has 1 to {MAX_ID} ASCII letters, digits and the characters - . _ ~"
            ));
        }
        let event_id = self.event_id.map(|text| {
            Ulid::from_string(&text)
                .map_err(|_| format!("eventId cannot be {text:?}: it must be a ULID; leave it out to get one"))
        });
        let occurred_at = self.occurred_at.map(|text| {
            text.parse().map_err(|_| {
                format!("occurredAt cannot be {text:?}: write a time such as 2026-11-21T10:00:00.123Z (RFC 3339)")
            })
        });
        let MetaMembers { actor, source_ip, correlation_id, causation_id, traceparent, trace_header } = self.meta;
        Ok(EventLine {
            key: AggregateKey::new(aggregate_type, id),
            seq_num: self.seq_num,
            event_id: event_id.transpose()?,
            event_type: self.event_type.ok_or_else(|| missing("eventType"))?,
            event_version: self.event_version,
            data: self.data.ok_or_else(|| missing("data"))?,
            meta: Meta { actor, source_ip, correlation_id, causation_id, traceparent, trace_header },
            occurred_at: occurred_at.transpose()?,
            message_seq: self.message_seq,
        })
    }
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Json>, D::Error> {
    Json::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(text: &str) -> EventLine {
        let Ok(Line::Event(event)) = Line::parse(text) else { panic!("{text}: {:?}", Line::parse(text)) };
        *event
    }

    #[test]
    fn written_event_is_read_as_it_was() {
        let data = r#"{"big":18446744073709551616,"small":1e-400,"text":"a\u00e9\n","null":null}"#;
        let recorded = RecordedEvent {
            seq_num: 7,
            event_id: Ulid::from_parts(1_795_255_200_123, 9),
            event_type: "TodoCreated".to_owned(),
            event_version: 3,
            data: Json::parse(data.to_owned()).unwrap(),
            meta: Meta { actor: Some("a \"b\"".to_owned()), ..Meta::default() },
            occurred_at: "2026-11-21T10:00:00.123Z".parse().unwrap(),
            message_seq: 5,
            message_epoch: 1,
        };
        let key = AggregateKey::new("todo", "1");
        let text = serde_json::to_string(&EventOut::new(&key, &recorded)).unwrap();
        let expected = r#"{"aggregateType":"todo","aggregateId":"1","seqNum":7,"eventId":"01M7YRRTBV0000000000000009","#
            .to_owned()
            + r#""eventType":"TodoCreated","eventVersion":3,"data":"#
            + data
            + r#","meta":{"actor":"a \"b\""},"occurredAt":"2026-11-21T10:00:00.123Z","messageSeq":5}"#;
        assert_eq!(text, expected);
        let read = event(&text);
        let expected = EventLine {
            key,
            seq_num: Some(7),
            event_id: Some(recorded.event_id),
            event_type: recorded.event_type,
            event_version: Some(3),
            data: recorded.data,
            meta: recorded.meta,
            occurred_at: Some(recorded.occurred_at),
            message_seq: Some(5),
        };
        assert_eq!(read, expected);
    }

    #[test]
    fn line_needs_only_aggregate_event_type_and_data() {
        let read = event(r#"{"aggregateType": "todo", "aggregateId": "1", "eventType": "TodoCreated", "data": null}"#);
        assert_eq!((read.data.text(), read.seq_num, read.occurred_at), ("null", None, None));
        let read = event(
            r#"{"aggregateType":"todo","aggregateId":"1","eventType":"E","data":{},"occurredAt":"2026-11-21T12:00:00+02:00"}"#,
        );
        assert_eq!(read.occurred_at, Some("2026-11-21T10:00:00Z".parse().unwrap()));
    }

    #[test]
    fn wrong_line_is_an_error_that_names_the_member() {
        for (text, expected) in [
            (r#"{"aggregateType":"todo","#, "EOF while parsing"),
            (r#"{"aggregateId":"1","eventType":"E","data":{}}"#, "aggregateType is missing"),
            (r#"{"aggregateType":"todo","aggregateId":"1","eventType":"E"}"#, "data is missing"),
            (
                r#"{"aggregateType":"todo","aggregateId":"a b","eventType":"E","data":{}}"#,
                "aggregateId cannot be \"a b\"",
            ),
            (r#"{"aggregateType":"todo","aggregateId":"1","eventtype":"E","data":{}}"#, "unknown field `eventtype`"),
            (
                r#"{"aggregateType":"todo","aggregateId":"1","eventType":"E","data":{},"meta":{"who":1}}"#,
                "unknown field `who`",
            ),
            (
                r#"{"aggregateType":"todo","aggregateId":"1","eventType":"E","data":{},"occurredAt":"yesterday"}"#,
                "occurredAt cannot be \"yesterday\"",
            ),
            (
                r#"{"aggregateType":"todo","aggregateId":"1","eventType":"E","data":{},"eventId":"7"}"#,
                "eventId cannot be \"7\"",
            ),
            (r#"{"daybookHistory":2}"#, "the format version 2 is not known"),
        ] {
            let error = Line::parse(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
