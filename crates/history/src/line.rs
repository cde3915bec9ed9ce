//! The lines of a history file, and how it is written. docs/operating.md describes them.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io::{self, Write};

use daybook_decider::record::timestamp;
use daybook_decider::{Json, Meta, RecordedEvent};
use daybook_table::AggregateKey;
use daybook_table::keys::{ID_RULE, is_id};
use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};
use sha2::{Digest, Sha256};
use ulid::Ulid;

/// The version of the format that this code writes, and the latest that it reads.
pub const FORMAT_VERSION: u32 = 1;

#[derive(Debug, PartialEq)]
pub enum Line {
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
pub struct EventLine {
    pub key: AggregateKey,
    pub seq_num: Option<u64>,
    pub event_id: Option<Ulid>,
    pub event_type: String,
    pub event_version: Option<u32>,
    pub data: Json,
    pub meta: Meta,
    pub occurred_at: Option<Timestamp>,
    pub message_seq: Option<u64>,
    pub together: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct IncompleteLine {
    pub aggregate_type: String,
    pub aggregate_id: String,
    pub reason: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HistorySummary {
    pub aggregates: u64,
    /// Lines of events, including those of incomplete aggregates.
    pub events: u64,
    pub incomplete: u64,
    /// SHA-256 of all bytes before the summary, in hexadecimal digits.
    pub sha256: String,
    /// How to export the remaining aggregates, if the export stopped early.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub go_on: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EventOut<'a> {
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
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    together: &'a [String],
}

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
    #[serde(default)]
    together: Vec<String>,
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
    pub fn parse(text: &str) -> Result<Self, String> {
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
    pub fn key(&self) -> AggregateKey {
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
            return Err(format!("aggregateId cannot be {id:?}: {ID_RULE}"));
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
            together: self.together,
        })
    }
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Json>, D::Error> {
    Json::deserialize(deserializer).map(Some)
}

pub struct HistoryWriter<W> {
    out: W,
    hash: Sha256,
    /// The summary so far, without the hash.
    summary: HistorySummary,
}

impl<W: Write> HistoryWriter<W> {
    pub fn begin(out: W) -> io::Result<Self> {
        let mut this = Self { out, hash: Sha256::new(), summary: HistorySummary::default() };
        this.write(&BTreeMap::from([("daybookHistory", FORMAT_VERSION)]))?;
        Ok(this)
    }

    pub fn event(&mut self, key: &AggregateKey, event: &RecordedEvent) -> io::Result<()> {
        self.summary.events += 1;
        self.write(&EventOut {
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
            together: &event.together,
        })
    }

    /// Ends an aggregate with all its events.
    pub fn complete(&mut self) {
        self.summary.aggregates += 1;
    }

    /// Ends an aggregate of which not all events could be read.
    pub fn incomplete(&mut self, incomplete: &IncompleteLine) -> io::Result<()> {
        self.summary.incomplete += 1;
        self.write(&BTreeMap::from([("incomplete", incomplete)]))
    }

    /// Ends the file with its summary. `go_on` describes how to export the remaining aggregates.
    pub fn finish(mut self, go_on: Option<String>) -> io::Result<HistorySummary> {
        let sha256 = hex(&self.hash.clone().finalize());
        let summary = HistorySummary { sha256, go_on, ..self.summary.clone() };
        self.write(&BTreeMap::from([("summary", &summary)]))?;
        self.out.flush()?;
        Ok(summary)
    }

    fn write(&mut self, line: &impl Serialize) -> io::Result<()> {
        // Within stored JSON, a line break can only be insignificant white space.
        let mut text = serde_json::to_string(line)?.replace(['\n', '\r'], " ");
        text.push('\n');
        self.hash.update(text.as_bytes());
        self.out.write_all(text.as_bytes())
    }
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
