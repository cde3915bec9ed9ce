//! A message as an entry for EventBridge, and its state while it is published.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::time::{Duration, SystemTime};

use aws_sdk_eventbridge::types::PutEventsRequestEntry;
use daybook_function_runtime::traces;
use daybook_table::{AggregateKey, OutboxItem};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tracing::Span;

use crate::queues::{QueueItem, REQUEST_BYTES};
use crate::record::{self, Content, Coordinates, OutboxRow, Unreadable};
use crate::settings::RelaySettings;
use crate::spans;

/// EventBridge counts a `Time` as this many bytes.
const TIME_BYTES: usize = 14;
/// Maximum characters of a `DetailType`.
const MAX_DETAIL_TYPE: usize = 128;

/// A message to be settled, for one or more records of a batch or for a row that is sent again.
#[derive(Debug)]
pub(crate) struct PendingMessage {
    pub(crate) body: Body,
    /// The records that are settled with it: more than one when the stream repeats a record within a batch, none for a
    /// row that is sent again.
    pub(crate) records: Vec<Coordinates>,
    /// The error because of which it can never be sent, once that is known.
    pub(crate) permanent_error: Option<EntryError>,
    /// The error of its latest attempt to be sent, or to be sent to the dead-letter queue.
    pub(crate) last_error: Option<EntryError>,
    /// The number of its failures with undocumented error codes.
    pub(crate) unknown_failures: u32,
    /// Its span in the trace of its row, until it is settled.
    pub(crate) span: Span,
}

#[derive(Debug)]
pub(crate) enum Body {
    /// An outbox row, and the entry that is sent for it.
    Row { item: OutboxItem, entry: Box<PutEventsRequestEntry> },
    /// A record that cannot be read, and its partition if that is known.
    Record { raw: Box<RawValue>, pk: Option<String> },
}

/// An error as a code and a text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryError {
    /// EventBridge's error code, or one of the relay's own.
    pub code: String,
    /// The description of the error.
    pub text: String,
}

impl EntryError {
    pub(crate) fn new(code: &str, text: impl Into<String>) -> Self {
        Self { code: code.to_owned(), text: text.into() }
    }

    /// Code and text as fields of a log line, which omits absent fields.
    pub(crate) fn fields(this: Option<&Self>) -> (Option<&str>, Option<&str>) {
        this.map(|error| (error.code.as_str(), error.text.as_str())).unzip()
    }
}

impl fmt::Display for EntryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.text)
    }
}

/// What the records of a batch are about.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    /// The messages, each once, in the order in which they came.
    pub(crate) messages: Vec<PendingMessage>,
    /// The aggregates with new events.
    pub(crate) moved: BTreeMap<AggregateKey, Moved>,
}

/// An aggregate with new events.
#[derive(Debug, Default)]
pub(crate) struct Moved {
    /// The number of the last of them.
    pub(crate) last: u64,
    /// The records that say so.
    pub(crate) records: Vec<Coordinates>,
}

/// Reads the records.
pub(crate) fn gather(records: Vec<Box<RawValue>>, settings: &RelaySettings) -> Gathered {
    let mut moved: BTreeMap<AggregateKey, Moved> = BTreeMap::new();
    let mut messages: Vec<PendingMessage> = Vec::new();
    let mut known: HashMap<[String; 3], usize> = HashMap::new();
    for raw in records {
        let (coordinates, content) = record::read(&raw);
        match content {
            Content::SomethingElse => {}
            Content::Moved(aggregate, last) => {
                let moved = moved.entry(aggregate).or_default();
                moved.last = moved.last.max(last);
                moved.records.push(coordinates);
            }
            Content::Unreadable(Unreadable { pk, reason }) => {
                let error = EntryError::new("UnreadableRecord", reason);
                messages.push(PendingMessage::new(Body::Record { raw, pk }, vec![coordinates], Some(error)));
            }
            Content::Outbox(row) => match known.entry(identity(&row.item)) {
                Entry::Occupied(first) => messages[*first.get()].records.push(coordinates),
                Entry::Vacant(unknown) => {
                    unknown.insert(messages.len());
                    messages.push(PendingMessage::of_row(*row, vec![coordinates], settings));
                }
            },
        }
    }
    Gathered { messages, moved }
}

/// The key by which two records are the same message: the row and its message id. The same id in another row would be
/// an error of the writer, and sending both loses nothing.
pub(crate) fn identity(item: &OutboxItem) -> [String; 3] {
    [&item.pk, &item.sk, &item.message_id].map(String::clone)
}

impl PendingMessage {
    /// The message of an outbox row, and the records that are settled with it.
    pub(crate) fn of_row(row: OutboxRow, records: Vec<Coordinates>, settings: &RelaySettings) -> Self {
        let span = spans::publish(&row);
        // The consumer continues the trace from the span.
        let of_span = traces::context(&span).map(|context| context.trace_header());
        let entry = PutEventsRequestEntry::builder()
            .event_bus_name(&settings.event_bus_name)
            .source(&settings.event_source)
            .detail_type(&row.item.message_type)
            .detail(&row.item.detail)
            .resources(row.aggregate.to_string())
            .time(row.occurred_at)
            .set_trace_header(of_span.or_else(|| row.item.trace_header.clone()))
            .build();
        let error = check(&entry).err();
        Self { span, ..Self::new(Body::Row { item: row.item, entry: Box::new(entry) }, records, error) }
    }

    fn new(body: Body, records: Vec<Coordinates>, permanent_error: Option<EntryError>) -> Self {
        Self { body, records, permanent_error, last_error: None, unknown_failures: 0, span: Span::none() }
    }

    /// The message's entry in the queues. An unreadable record goes before the other messages of its aggregate,
    /// because its own number is unknown: no message overtakes it while it is unsettled.
    pub(crate) fn queue_item(&self) -> QueueItem<'_> {
        match &self.body {
            Body::Row { item, entry } => QueueItem {
                aggregate: Some(&item.pk),
                order: item.message_seq,
                bytes: self.permanent_error.is_none().then(|| size(entry)),
            },
            Body::Record { pk, .. } => QueueItem { aggregate: pk.as_deref(), order: 0, bytes: None },
        }
    }

    /// The entry that is sent for it; `None` for a record that cannot be read.
    pub(crate) fn entry(&self) -> Option<&PutEventsRequestEntry> {
        match &self.body {
            Body::Row { entry, .. } => Some(entry),
            Body::Record { .. } => None,
        }
    }

    /// The time since its row was written: by DynamoDB's clock, which is the same for all writers, or else since its
    /// event occurred. `None` for a row that is sent again, whose age means nothing.
    pub(crate) fn age(&self, now: SystemTime) -> Option<Duration> {
        let occurred = || SystemTime::try_from(*self.entry()?.time()?).ok();
        let since = self.records.first()?.created_at.or_else(occurred)?;
        now.duration_since(since).ok()
    }

    /// The message id, or the event id of a record that cannot be read.
    pub(crate) fn id(&self) -> &str {
        match &self.body {
            Body::Row { item, .. } => &item.message_id,
            Body::Record { .. } => self.records.iter().find_map(|record| record.event_id.as_deref()).unwrap_or("?"),
        }
    }
}

/// Finds entries that EventBridge is certain to reject, before they fail a whole request.
fn check(entry: &PutEventsRequestEntry) -> Result<(), EntryError> {
    let detail_type = entry.detail_type().unwrap_or_default();
    if detail_type.is_empty() || entry.detail().unwrap_or_default().is_empty() {
        return Err(EntryError::new("InvalidArgument", "DetailType or Detail is empty"));
    }
    if detail_type.chars().count() > MAX_DETAIL_TYPE {
        return Err(EntryError::new(
            "InvalidArgument",
            format!("DetailType is longer than {MAX_DETAIL_TYPE} characters"),
        ));
    }
    let size = size(entry);
    if size >= REQUEST_BYTES {
        let text = format!("the entry has {size} bytes, expected fewer than {REQUEST_BYTES}");
        return Err(EntryError::new("OversizedEntry", text));
    }
    Ok(())
}

/// The size of an entry in bytes, by EventBridge's rule: 14 for the time, and the UTF-8 bytes of source, detail type,
/// detail and resources. The trace header does not count.
fn size(entry: &PutEventsRequestEntry) -> usize {
    let texts = [entry.source(), entry.detail_type(), entry.detail()];
    entry.time().map_or(0, |_| TIME_BYTES)
        + texts.into_iter().flatten().map(str::len).sum::<usize>()
        + entry.resources().iter().map(String::len).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(detail_type: &str, detail: &str) -> PutEventsRequestEntry {
        PutEventsRequestEntry::builder()
            .source("daybook")
            .detail_type(detail_type)
            .detail(detail)
            .resources("todo/é")
            .time(aws_sdk_eventbridge::primitives::DateTime::from_secs(0))
            .build()
    }

    #[test]
    fn size_is_14_bytes_and_the_utf_8_of_the_texts() {
        assert_eq!(size(&entry("Ü", "{}")), 14 + 7 + 2 + 2 + 7);
        assert_eq!(size(&PutEventsRequestEntry::builder().build()), 0);
    }

    #[test]
    fn unsendable_entry_is_found_before_the_call() {
        let code = |detail_type: &str, detail: &str| check(&entry(detail_type, detail)).map_err(|error| error.code);
        assert_eq!(code("TodoCreated", "{}"), Ok(()));
        assert_eq!(code(&"é".repeat(128), "{}"), Ok(()));
        assert_eq!(code(&"x".repeat(129), "{}"), Err("InvalidArgument".to_owned()));
        assert_eq!(code("", "{}"), Err("InvalidArgument".to_owned()));
        assert_eq!(code("TodoCreated", ""), Err("InvalidArgument".to_owned()));
        let overhead = 14 + 7 + 1 + 7;
        assert_eq!(code("T", &"x".repeat(REQUEST_BYTES - overhead - 1)), Ok(()));
        assert_eq!(code("T", &"x".repeat(REQUEST_BYTES - overhead)), Err("OversizedEntry".to_owned()));
    }
}
