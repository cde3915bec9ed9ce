//! Batches of messages: the outbox rows of the events of a window, in the order of the events.
//!
//! Invariant: memory is bounded by two batches, one that is sent and one that is read, and by the reads under way, of 25 rows
//! or of one event each. Where the index does not show an event's number of rows, it counts as one row.

use std::collections::HashMap;
use std::num::NonZeroU32;

use daybook_admin::{AdminCalls, EventMessages, IndexEntry};
use daybook_event_store::{EventStore, StoreError, UnreadableRow};
use daybook_table::AggregateKey;
use futures_util::stream::{self, LocalBoxStream};
use futures_util::{StreamExt, TryStreamExt};
use ulid::Ulid;

use super::window::{Chunk, WindowReader};
use crate::pacing::Interrupt;

/// Maximum rows of a batch, before the last read is added.
const MAX_ROWS: usize = 5_000;

/// A batch is complete as soon as its details have this many bytes.
const MAX_BYTES: usize = 8 * 1024 * 1024;

/// Concurrent reads, and the maximum events and rows of each. An event with more rows is read alone.
const CONCURRENCY: usize = 20;
const READ_EVENTS: usize = 25;
const READ_ROWS: usize = 25;

#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) unreadable: Vec<UnreadableRow>,
    pub(super) events: Vec<(IndexEntry, EventMessages)>,
    /// The id up to which the window is complete with this batch.
    pub(super) through: Option<Ulid>,
    pub(super) is_last: bool,
    /// The error because of which it is the last batch.
    pub(super) error: Option<StoreError>,
}

pub(super) struct Batches<'a> {
    reads: LocalBoxStream<'a, Result<Batch, StoreError>>,
    max_rows: usize,
}

impl<'a> Batches<'a> {
    /// The batches of the events of `window`. At a low rate, a batch contains the messages of about a second.
    pub(super) fn new(
        store: &'a EventStore,
        window: WindowReader<'a>,
        rate: NonZeroU32,
        interrupt: &'a Interrupt,
    ) -> Self {
        let chunks = stream::try_unfold(window, move |mut window| async move {
            let chunk = if interrupt.is_cancelled() { None } else { window.next_chunk().await? };
            let parts = chunk.map(|chunk| stream::iter(parts(chunk).into_iter().map(Ok::<_, StoreError>)));
            Ok::<_, StoreError>(parts.map(|parts| (parts, window)))
        });
        let reads = chunks.try_flatten().map_ok(move |part| read(store, part)).try_buffered(CONCURRENCY);
        let max_rows = usize::try_from(rate.get()).unwrap_or(MAX_ROWS).clamp(10, MAX_ROWS);
        Self { reads: reads.boxed_local(), max_rows }
    }

    /// The next batch. After the last one, the batches are empty.
    pub(super) async fn next(&mut self) -> Batch {
        let mut batch = Batch::default();
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
                Some(Err(error)) => return Batch { error: Some(error), is_last: true, ..batch },
                None => return Batch { is_last: true, ..batch },
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

async fn read(store: &EventStore, Chunk { unreadable, events, through }: Chunk) -> Result<Batch, StoreError> {
    let messages = store.admin().messages_of(&events).await?;
    Ok(Batch { unreadable, events: events.into_iter().zip(messages).collect(), through, ..Batch::default() })
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
