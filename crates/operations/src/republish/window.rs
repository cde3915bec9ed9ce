//! The events of a time window, found in the index, in the order of their ids; and their messages, the outbox rows, in batches.
//!
//! Invariant: memory is bounded by what is read ahead of the index; by two batches, one that is sent and one that is read; and by the
//! reads under way, of 25 rows or of one event each. Where the index does not show an event's number of rows, it counts as one row.

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroU32;

use clap::Args;
use daybook_admin::{AdminCalls, EventMessages, IndexEntry, IndexPartition};
use daybook_decider::Registry;
use daybook_decider::record::timestamp;
use daybook_event_store::{EventStore, StoreError, UnreadableRow};
use daybook_table::{AggregateKey, keys};
use futures_util::stream::{self, LocalBoxStream};
use futures_util::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use ulid::Ulid;

use crate::error::OperatorError;
use crate::moment::Moment;
use crate::pacing::Interrupt;
use crate::selection::models;

/// Maximum events of all partitions together that are read ahead, at about 200 bytes each.
const MAX_READ_AHEAD: usize = 16_000;

/// Number of selected events that a chunk has at least, except the last one.
const CHUNK: usize = 4_000;

const PAGE_READS: usize = 16;

/// The events whose messages are sent again: those of a time window, of all or of some aggregates and types.
#[derive(Clone, Debug, Args)]
pub struct Window {
    /// The beginning, included: 2026-11-20T08:00:00Z, or a duration before now, such as 30m, 2h, 7d.
    #[arg(long, value_name = "TIME")]
    pub from: Moment,
    /// The end, not included: a time, a duration before now, or now.
    #[arg(long, value_name = "TIME", default_value = "now")]
    pub to: Moment,
    /// Only aggregates of this type; can be repeated.
    #[arg(long = "type", value_name = "TYPE")]
    pub types: Vec<String>,
    /// Only this aggregate; can be repeated.
    #[arg(long = "aggregate", value_name = "TYPE/ID", conflicts_with = "types")]
    pub aggregates: Vec<AggregateKey>,
    /// Only messages of this type; can be repeated.
    #[arg(long = "message-type", value_name = "TYPE")]
    pub message_types: Vec<String>,
    /// An event type that the table contains and the code no longer declares; can be repeated.
    #[arg(long = "event-type", value_name = "NAME")]
    pub event_types: Vec<String>,
}

impl Window {
    /// The names of all events that may have published messages.
    pub(super) fn event_names<'a>(&'a self, registry: &'a Registry) -> Result<Vec<&'a str>, OperatorError> {
        // `types` and `aggregates` are never both given.
        let of_aggregates = self.aggregates.iter().map(|key| key.aggregate_type.clone());
        let models = models(registry, &self.types.iter().cloned().chain(of_aggregates).collect::<Vec<_>>())?;
        let mut names: Vec<&str> =
            models.iter().flat_map(|model| model.stored_events()).map(|(name, _)| name).collect();
        names.extend(self.event_types.iter().map(String::as_str));
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    fn selects(&self, key: &AggregateKey) -> bool {
        let by_name = self.aggregates.is_empty() || self.aggregates.contains(key);
        by_name && (self.types.is_empty() || self.types.contains(&key.aggregate_type))
    }
}

/// The first and the last id that an event of a window can have.
pub(super) fn ids_between(from: Timestamp, to: Timestamp) -> Result<(Ulid, Ulid), OperatorError> {
    let milliseconds = |at: Timestamp| u64::try_from(at.as_millisecond()).ok();
    match (milliseconds(from), milliseconds(to)) {
        (Some(first), Some(end)) if first < end => {
            Ok((Ulid::from_parts(first, 0), Ulid::from_parts(end - 1, u128::MAX)))
        }
        _ => Err(OperatorError::Usage("--from must be before --to, and both after 1970".to_owned())),
    }
}

pub(super) fn time_of(id: Ulid) -> Option<String> {
    let milliseconds = i64::try_from(id.timestamp_ms()).ok()?;
    Timestamp::from_millisecond(milliseconds).ok().map(timestamp)
}

#[derive(Debug, Default)]
struct Chunk {
    /// The selected events, in the order of their ids. So those of an aggregate are in the order of their numbers.
    events: Vec<IndexEntry>,
    unreadable: Vec<UnreadableRow>,
    /// The id up to which the chunk contains all events: the last id of the window in the last chunk, none in a part of a chunk
    /// that another one follows.
    through: Option<Ulid>,
}

/// The events of the window in all index partitions, merged.
pub(super) struct WindowReader<'a> {
    store: &'a EventStore,
    window: &'a Window,
    partitions: Vec<PartitionReader>,
    last: Ulid,
    page: usize,
    ended: bool,
}

/// The events of one partition that were read and are not in a chunk yet.
struct PartitionReader {
    partition: IndexPartition,
    /// The lowest id that the next page may contain; `None` after the last page.
    next: Option<Ulid>,
    events: VecDeque<IndexEntry>,
}

impl<'a> WindowReader<'a> {
    /// The events of these types with ids from `first` to `last`, both included.
    pub(super) fn new(
        store: &'a EventStore,
        window: &'a Window,
        event_types: &[&str],
        (first, last): (Ulid, Ulid),
    ) -> Self {
        let partitions = store.admin().index_partitions(event_types);
        let page = (MAX_READ_AHEAD / partitions.len().max(1)).clamp(25, 1_000);
        let reader = |partition| PartitionReader { partition, next: Some(first), events: VecDeque::new() };
        Self { store, window, partitions: partitions.into_iter().map(reader).collect(), last, page, ended: false }
    }

    /// The next part of the window; `None` after the last one.
    async fn next_chunk(&mut self) -> Result<Option<Chunk>, StoreError> {
        if self.ended {
            return Ok(None);
        }
        let mut chunk = Chunk::default();
        while chunk.events.len() < CHUNK && !self.ended {
            self.read_ahead(&mut chunk.unreadable).await?;
            // The events beyond the end of a page are not complete: the next page of that partition may contain others.
            let next = self.partitions.iter().filter_map(|partition| partition.next).min();
            let complete = |event: &IndexEntry| next.is_none_or(|next| event.event_id < next);
            for partition in &mut self.partitions {
                while let Some(event) = partition.events.pop_front_if(|event| complete(event)) {
                    chunk.events.push(event);
                }
            }
            self.ended = next.is_none();
            chunk.through = Some(next.map_or(self.last, |next| Ulid::from(u128::from(next).saturating_sub(1))));
        }
        chunk.events.sort_by_key(|event| event.event_id);
        Ok(Some(chunk))
    }

    /// Reads the next page of each partition of which less than half a page is left.
    async fn read_ahead(&mut self, unreadable: &mut Vec<UnreadableRow>) -> Result<(), StoreError> {
        let (store, last, limit) = (self.store, self.last, self.page);
        let short = self.partitions.iter().enumerate().filter(|(_, reader)| reader.events.len() < limit.div_ceil(2));
        let reads: Vec<_> = short
            .filter_map(|(at, reader)| Some((at, reader.partition.clone(), reader.next?)))
            .map(async |(at, partition, first)| {
                Ok::<_, StoreError>((at, store.admin().index(&partition, first, last, limit).await?))
            })
            .collect();
        let pages: Vec<_> = stream::iter(reads).buffer_unordered(PAGE_READS).try_collect().await?;
        for (at, page) in pages {
            let reader = &mut self.partitions[at];
            reader.events.extend(page.items.into_iter().filter(|event| self.window.selects(&event.aggregate)));
            reader.next = keys::id_after(page.cursor).filter(|_| page.more);
            let of_selection =
                |row: &UnreadableRow| row.aggregate().is_none_or(|aggregate| self.window.selects(&aggregate));
            unreadable.extend(page.unreadable.into_iter().filter(of_selection));
        }
        Ok(())
    }
}

/// Maximum rows of a batch, before the last read is added.
const MAX_ROWS: usize = 5_000;

/// A batch is complete as soon as its details have this many bytes.
const MAX_BYTES: usize = 8 * 1024 * 1024;

/// Concurrent reads, and the maximum events and rows of each. An event with more rows is read alone.
const MESSAGE_READS: usize = 20;
const READ_EVENTS: usize = 25;
const READ_ROWS: usize = 25;

#[derive(Debug, Default)]
pub(super) struct EventBatch {
    pub(super) unreadable: Vec<UnreadableRow>,
    pub(super) events: Vec<(IndexEntry, EventMessages)>,
    /// The id up to which the window is complete with this batch.
    pub(super) through: Option<Ulid>,
    pub(super) is_last: bool,
    /// The error because of which it is the last batch.
    pub(super) error: Option<StoreError>,
}

pub(super) struct EventBatches<'a> {
    reads: LocalBoxStream<'a, Result<EventBatch, StoreError>>,
    max_rows: usize,
}

impl<'a> EventBatches<'a> {
    /// The batches of the events of `window`. At a low rate, a batch contains the messages of about a second.
    pub(super) fn new(window: WindowReader<'a>, rate: NonZeroU32, interrupt: &'a Interrupt) -> Self {
        let store = window.store;
        let chunks = stream::try_unfold(window, move |mut window| async move {
            let chunk = if interrupt.is_cancelled() { None } else { window.next_chunk().await? };
            let parts = chunk.map(|chunk| stream::iter(parts(chunk).into_iter().map(Ok::<_, StoreError>)));
            Ok::<_, StoreError>(parts.map(|parts| (parts, window)))
        });
        let reads = chunks.try_flatten().map_ok(move |part| read(store, part)).try_buffered(MESSAGE_READS);
        let max_rows = usize::try_from(rate.get()).unwrap_or(MAX_ROWS).clamp(10, MAX_ROWS);
        Self { reads: reads.boxed_local(), max_rows }
    }

    /// The next batch. After the last one, the batches are empty.
    pub(super) async fn next(&mut self) -> EventBatch {
        let mut batch = EventBatch::default();
        let (mut rows, mut bytes) = (0, 0);
        while rows < self.max_rows && bytes < MAX_BYTES {
            match self.reads.next().await {
                Some(Ok(read)) => {
                    for row in read.events.iter().flat_map(|(_, messages)| &messages.rows) {
                        (rows, bytes) = (rows + 1, bytes + row.detail.len());
                    }
                    batch.unreadable.extend(read.unreadable);
                    batch.events.extend(read.events);
                    batch.through = read.through;
                }
                Some(Err(error)) => return EventBatch { error: Some(error), is_last: true, ..batch },
                None => return EventBatch { is_last: true, ..batch },
            }
        }
        batch
    }
}

/// The parts of a chunk that are read together. The last one has its unreadable rows and its end.
fn parts(chunk: Chunk) -> Vec<Chunk> {
    let (mut parts, mut part, mut rows) = (Vec::new(), Chunk::default(), 0);
    for event in with_counts(chunk.events) {
        let more = event.count().unwrap_or(1);
        if !part.events.is_empty() && (part.events.len() == READ_EVENTS || rows + more > READ_ROWS) {
            parts.push(std::mem::take(&mut part));
            rows = 0;
        }
        rows += more;
        part.events.push(event);
    }
    parts.push(Chunk { events: part.events, ..chunk });
    parts
}

/// The events with the numbers of messages before them, as far as the chunk contains the event before each.
fn with_counts(events: Vec<IndexEntry>) -> impl Iterator<Item = IndexEntry> {
    let mut latest: HashMap<AggregateKey, (u64, Option<u64>)> = HashMap::new();
    events.into_iter().map(move |event| {
        let before = latest.insert(event.aggregate.clone(), (event.seq_num, event.message_seq));
        let before = before.filter(|(number, _)| number + 1 == event.seq_num);
        IndexEntry { messages_before: before.and_then(|(_, messages)| messages), ..event }
    })
}

async fn read(store: &EventStore, Chunk { unreadable, events, through }: Chunk) -> Result<EventBatch, StoreError> {
    let messages = store.admin().messages_of(&events).await?;
    Ok(EventBatch { unreadable, events: std::iter::zip(events, messages).collect(), through, ..EventBatch::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of events of the parts of a chunk, whose events have these numbers of messages and are of one aggregate.
    fn sizes(messages: &[u64]) -> Vec<usize> {
        let mut all = 0_u64;
        let events = (1..).zip(messages).map(|(seq_num, messages)| {
            all += messages;
            let (aggregate, event_id) = (AggregateKey::new("todo", "1"), Ulid::from_parts(seq_num, 0));
            IndexEntry { aggregate, seq_num, event_id, message_seq: Some(all), messages_before: None }
        });
        let chunk = Chunk { events: events.collect(), ..Chunk::default() };
        parts(chunk).iter().map(|part| part.events.len()).collect()
    }

    #[test]
    fn part_ends_after_25_events_or_25_rows() {
        assert_eq!(sizes(&[1; 60]), [25, 25, 10]);
        assert_eq!(sizes(&[0; 60]), [25, 25, 10]);
        assert_eq!(sizes(&[10, 10, 5, 1, 98, 98, 0, 3]), [3, 1, 1, 1, 2]);
        assert_eq!(sizes(&[]), [0]);
    }
}
