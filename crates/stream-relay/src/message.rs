//! A message as an entry for EventBridge, its state while it is published, and the result of publishing.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::time::{Duration, SystemTime};

use aws_sdk_eventbridge::types::PutEventsRequestEntry;
use daybook_function_runtime::traces;
use daybook_table::{AggregateKey, Changed, DueDeadline, OutboxItem};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::time::Instant;
use tracing::Span;

use crate::clients::NoSuchBus;
use crate::queues::{QueueItem, REQUEST_BYTES};
use crate::record::{self, Content, Coordinates, OutboxRow, Unreadable};
use crate::settings::RelaySettings;
use crate::spans;

/// EventBridge counts a `Time` as this many bytes.
const TIME_BYTES: usize = 14;
const MAX_DETAIL_TYPE: usize = 128;

/// A message to be settled, for one or more records of a batch or for a row that is sent again.
#[derive(Debug)]
pub(crate) struct PendingMessage {
    pub(crate) body: Body,
    /// The records that are settled with it: more than one when the stream repeats a record within a batch, none for a
    /// row that is sent again.
    pub(crate) records: Vec<Coordinates>,
    /// The size of its entry; `None` if the entry is too large or invalid, and so can never be sent.
    pub(crate) bytes: Option<usize>,
    /// The error because of which it can never be sent, once that is known.
    pub(crate) permanent_error: Option<EntryError>,
    /// The error of its latest attempt to be sent, or to be sent to the dead-letter queue.
    pub(crate) last_error: Option<EntryError>,
    /// The number of its failures with undocumented error codes.
    pub(crate) unknown_failures: u32,
    pub(crate) attempts: Attempts,
    /// Its span in the trace of its row, until it is settled.
    pub(crate) span: Span,
}

/// The attempts of this process to send a message, also those of its earlier deliveries.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attempts {
    pub(crate) first_failure: Option<Instant>,
    pub(crate) count: u32,
    /// The number of its transient failures, without throttling.
    pub(crate) transient_failures: u32,
    /// Since when it has failed although the bus accepted another message after its first failure.
    pub(crate) alone_since: Option<Instant>,
    /// Since when it has failed although the bus accepted another message shortly before.
    pub(crate) unclear_since: Option<Instant>,
    /// The error because of which it can never be sent, if the dead-letter queue has not accepted it yet.
    pub(crate) rejection: Option<EntryError>,
}

#[derive(Debug)]
pub(crate) enum Body {
    /// An outbox row. It becomes an entry when it is sent, so that the texts of a batch are not in memory twice.
    Row(Box<OutboxRow>),
    /// A record that cannot be read, and its partition if that is known.
    Record { raw: Box<RawValue>, pk: Option<String> },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryError {
    /// EventBridge's error code, or one of the relay's own.
    pub code: String,
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

/// The contents of the records of a batch that are not settled.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    /// The messages, each once, in the order in which they came.
    pub(crate) messages: Vec<PendingMessage>,
    pub(crate) changed: BTreeMap<AggregateKey, Changed<Coordinates>>,
    pub(crate) soon: BTreeMap<DueDeadline, Vec<Coordinates>>,
}

pub(crate) fn gather(
    records: Vec<Box<RawValue>>,
    settings: &RelaySettings,
    is_settled: impl Fn(&Coordinates) -> bool,
) -> Gathered {
    let mut known = HashMap::new();
    let Gathered { mut messages, mut changed, mut soon } = Gathered::default();
    messages.reserve(records.len());
    for raw in records {
        let (coordinates, content) = record::read(&raw);
        if is_settled(&coordinates) {
            continue;
        }
        let (identity, message) = match content {
            Content::SomethingElse => continue,
            Content::Changed(aggregate, last) => {
                changed.entry(aggregate).or_default().add(last, coordinates);
                continue;
            }
            Content::Soon(deadline) => {
                soon.entry(deadline).or_default().push(coordinates);
                continue;
            }
            Content::Unreadable(Unreadable { pk, reason }) => {
                let error = EntryError::new("UnreadableRecord", reason);
                (raw.get().to_owned(), PendingMessage::new(Body::Record { raw, pk }, Some(error)))
            }
            Content::Outbox(row) => (identity(&row.item), PendingMessage::of_row(row, settings)),
        };
        let index = *known.entry(identity).or_insert(messages.len());
        if index == messages.len() {
            messages.push(message);
        }
        messages[index].records.push(coordinates);
    }
    Gathered { messages, changed, soon }
}

/// The key by which two records are the same message: the row and its message id. The same id in another row would be
/// an error of the writer, and sending both loses nothing.
pub(crate) fn identity(item: &OutboxItem) -> String {
    [item.pk.as_str(), &item.sk, &item.message_id].join("\0")
}

impl PendingMessage {
    /// The message of an outbox row, without records.
    pub(crate) fn of_row(row: Box<OutboxRow>, settings: &RelaySettings) -> Self {
        let checked = check(&row, settings);
        Self { bytes: checked.as_ref().ok().copied(), ..Self::new(Body::Row(row), checked.err()) }
    }

    fn new(body: Body, permanent_error: Option<EntryError>) -> Self {
        let (records, bytes, last_error, attempts, span) = (Vec::new(), None, None, Attempts::default(), Span::none());
        Self { body, records, bytes, permanent_error, last_error, unknown_failures: 0, attempts, span }
    }

    pub(crate) fn resume(&mut self, attempts: Attempts) {
        if attempts.rejection.is_some() {
            (self.bytes, self.permanent_error) = (None, attempts.rejection.clone());
        }
        self.attempts = attempts;
    }

    pub(crate) fn start_span(&mut self) {
        if let Body::Row(row) = &self.body {
            self.span = spans::publish(row);
        }
    }

    /// The message's entry in the queues. An unreadable record goes before the other messages of its aggregate,
    /// because its own number is unknown: no message overtakes it while it is unsettled.
    pub(crate) fn queue_item(&self) -> QueueItem<'_> {
        match &self.body {
            Body::Row(row) => {
                QueueItem { aggregate: Some(&row.item.pk), order: row.item.message_seq, bytes: self.bytes }
            }
            Body::Record { pk, .. } => QueueItem { aggregate: pk.as_deref(), order: 0, bytes: None },
        }
    }

    /// The entry that is sent for it; `None` for a record that cannot be read.
    pub(crate) fn entry(&self, settings: &RelaySettings) -> Option<PutEventsRequestEntry> {
        let OutboxRow { item, aggregate, occurred_at } = self.row()?;
        // The consumer continues the trace from the span.
        let of_span = traces::context(&self.span).map(|context| context.trace_header());
        let entry = PutEventsRequestEntry::builder()
            .event_bus_name(&settings.event_bus_name)
            .source(&settings.event_source)
            .detail_type(&item.message_type)
            .detail(&item.detail)
            .resources(aggregate)
            .time(*occurred_at)
            .set_trace_header(of_span.or_else(|| item.trace_header.clone()));
        Some(entry.build())
    }

    /// When its event occurred; `None` for a record that cannot be read.
    pub(crate) fn occurred_at(&self) -> Option<SystemTime> {
        SystemTime::try_from(self.row()?.occurred_at).ok()
    }

    /// The message id, or the event id of a record that cannot be read.
    pub(crate) fn id(&self) -> &str {
        match &self.body {
            Body::Row(row) => &row.item.message_id,
            Body::Record { .. } => self.records.iter().find_map(|record| record.event_id.as_deref()).unwrap_or("?"),
        }
    }

    fn row(&self) -> Option<&OutboxRow> {
        match &self.body {
            Body::Row(row) => Some(row),
            Body::Record { .. } => None,
        }
    }
}

/// The size of a row's entry. Finds entries that EventBridge is certain to reject, before they fail a whole request.
fn check(row: &OutboxRow, settings: &RelaySettings) -> Result<usize, EntryError> {
    let OutboxItem { message_type, detail, .. } = &row.item;
    if message_type.is_empty() || detail.is_empty() {
        return Err(EntryError::new("InvalidArgument", "DetailType or Detail is empty"));
    }
    if message_type.chars().count() > MAX_DETAIL_TYPE {
        return Err(EntryError::new(
            "InvalidArgument",
            format!("DetailType is longer than {MAX_DETAIL_TYPE} characters"),
        ));
    }
    let size = size(row, settings);
    if size >= REQUEST_BYTES {
        let text = format!("the entry has {size} bytes, expected fewer than {REQUEST_BYTES}");
        return Err(EntryError::new("OversizedEntry", text));
    }
    Ok(size)
}

/// The size of a row's entry in bytes, by EventBridge's rule: 14 for the time, and the UTF-8 bytes of source, detail type,
/// detail and resources. The trace header does not count.
fn size(row: &OutboxRow, settings: &RelaySettings) -> usize {
    let texts = [&settings.event_source, &row.item.message_type, &row.item.detail, &row.aggregate];
    TIME_BYTES + texts.into_iter().map(String::len).sum::<usize>()
}

/// The messages, and the counts made while they were published. Messages are identified by their index.
#[derive(Debug, Default)]
pub(crate) struct Published {
    pub(crate) messages: Vec<PendingMessage>,
    /// The messages that were neither sent nor sent to the dead-letter queue.
    pub(crate) unsettled: BTreeSet<usize>,
    pub(crate) calls: usize,
    /// Messages that were sent again, once for each time.
    pub(crate) retried: Vec<usize>,
    pub(crate) dead_lettered: usize,
    /// The time from event to bus, of each message that the bus accepted.
    pub(crate) lags: Vec<Duration>,
    /// The message that failed most recently and can still be sent.
    pub(crate) last_failed: Option<usize>,
    /// The first error of the deployment, after which sending stopped.
    pub(crate) deployment_error: Option<EntryError>,
    /// An error with which the bus rejected several messages and accepted none, so that sending stopped.
    pub(crate) breaker_error: Option<EntryError>,
    /// Requests for which no TLS connection was made.
    pub(crate) tls_failures: usize,
}

impl Published {
    /// The bus did not exist meanwhile, so it has dropped every message that it accepted.
    pub(crate) fn dropped(&mut self, missing: &NoSuchBus) {
        // With a permanent error, a message is in the dead-letter queue.
        let messages = self.messages.iter().enumerate();
        self.unsettled
            .extend(messages.filter(|(_, message)| message.permanent_error.is_none()).map(|(index, _)| index));
        self.lags.clear();
        self.deployment_error = Some(EntryError::new("NoSuchBus", missing.to_string()));
    }

    pub(crate) fn count_sent(&mut self, index: usize, now: SystemTime) {
        let lag = self.messages[index].occurred_at().and_then(|at| now.duration_since(at).ok());
        // The lag counts as zero when this clock is behind the writer's.
        self.lags.push(lag.unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use daybook_settings::Environment;

    use super::*;

    fn settings() -> RelaySettings {
        let environment: Environment = [("EVENT_BUS_NAME", "main"), ("EVENT_SOURCE", "daybook")].into_iter().collect();
        RelaySettings::read_bus(&environment).unwrap()
    }

    fn row(message_type: &str, detail: &str) -> Box<OutboxRow> {
        let item = OutboxItem {
            pk: "AGGREGATE#todo#1".into(),
            sk: "OUTBOX#000000000001#0".into(),
            message_id: "01ARZ3NDEKTSV4RRFFQ69G5FAV".into(),
            message_type: message_type.into(),
            message_seq: 1,
            detail: detail.into(),
            occurred_at: "2026-11-21T01:02:03.456Z".into(),
            seq_num: 1,
            ttl: 1,
            trace_header: None,
        };
        Box::new(OutboxRow::of(item).unwrap())
    }

    #[test]
    fn size_is_14_bytes_and_the_utf_8_of_the_texts() {
        let row = row("Ü", "{\"text\":\"é\"}");
        assert_eq!(size(&row, &settings()), 14 + 7 + 2 + 13 + 6);
        let message = PendingMessage::of_row(row, &settings());
        let entry = message.entry(&settings()).unwrap();
        let texts =
            [entry.source(), entry.detail_type(), entry.detail(), entry.resources().first().map(String::as_str)];
        assert_eq!(message.bytes, Some(14 + texts.into_iter().flatten().map(str::len).sum::<usize>()));
    }

    #[test]
    fn unsendable_entry_is_found_before_the_call() {
        let code = |message_type: &str, detail: &str| {
            check(&row(message_type, detail), &settings()).map(drop).map_err(|error| error.code)
        };
        assert_eq!(code("TodoCreated", "{}"), Ok(()));
        assert_eq!(code(&"é".repeat(128), "{}"), Ok(()));
        assert_eq!(code(&"x".repeat(129), "{}"), Err("InvalidArgument".to_owned()));
        assert_eq!(code("", "{}"), Err("InvalidArgument".to_owned()));
        assert_eq!(code("TodoCreated", ""), Err("InvalidArgument".to_owned()));
        let overhead = 14 + 7 + 1 + 6;
        assert_eq!(code("T", &"x".repeat(REQUEST_BYTES - overhead - 1)), Ok(()));
        assert_eq!(code("T", &"x".repeat(REQUEST_BYTES - overhead)), Err("OversizedEntry".to_owned()));
    }
}
