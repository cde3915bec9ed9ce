//! Batches of messages: the outbox rows of the events of a window, in the order of the events.
//!
//! Invariant: memory is bounded by two batches, one that is sent and one that is read, and by the reads under way.

use std::collections::HashMap;
use std::num::NonZeroU32;

use daybook_admin::{AdminCalls, EventMessages, IndexEntry, PublishedEvent};
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

/// Concurrent reads, and the events of each.
const CONCURRENCY: usize = 20;
const READ_EVENTS: usize = 25;

#[derive(Debug)]
pub(super) struct ReadEvent {
    pub(super) event_id: Ulid,
    pub(super) aggregate: AggregateKey,
    pub(super) seq_num: u64,
    pub(super) messages: EventMessages,
}

#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) unreadable: Vec<UnreadableRow>,
    pub(super) events: Vec<ReadEvent>,
    /// The id up to which the window is complete with this batch.
    pub(super) through: Option<Ulid>,
    pub(super) is_last: bool,
    /// The error because of which it is the last batch.
    pub(super) error: Option<StoreError>,
}

/// What is read together. The last part of a chunk has its unreadable rows and its end, and no events.
#[derive(Default)]
struct Part {
    unreadable: Vec<UnreadableRow>,
    events: Vec<(Ulid, PublishedEvent)>,
    through: Option<Ulid>,
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
                    for row in read.events.iter().flat_map(|event| &event.messages.rows) {
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

fn parts(Chunk { events, unreadable, through }: Chunk) -> Vec<Part> {
    let events: Vec<_> = with_counts(events).collect();
    let part = |events: &[_]| Part { events: events.to_vec(), ..Part::default() };
    let mut parts: Vec<_> = events.chunks(READ_EVENTS).map(part).collect();
    parts.push(Part { unreadable, events: Vec::new(), through: Some(through) });
    parts
}

/// The events with the numbers of messages before them, as far as the chunk contains the event before each.
fn with_counts(events: Vec<IndexEntry>) -> impl Iterator<Item = (Ulid, PublishedEvent)> {
    let mut latest: HashMap<AggregateKey, (u64, Option<u64>)> = HashMap::new();
    events.into_iter().map(move |IndexEntry { aggregate, seq_num, event_id, message_seq }| {
        let before = latest.insert(aggregate.clone(), (seq_num, message_seq));
        let messages_before = before.filter(|(number, _)| number + 1 == seq_num).and_then(|(_, messages)| messages);
        (event_id, PublishedEvent { aggregate, seq_num, message_seq, messages_before })
    })
}

async fn read(store: &EventStore, Part { unreadable, events, through }: Part) -> Result<Batch, StoreError> {
    let (ids, events): (Vec<_>, Vec<_>) = events.into_iter().unzip();
    let messages = store.admin().messages_of(&events).await?;
    let events = ids.into_iter().zip(events).zip(messages).map(|((event_id, event), messages)| {
        let PublishedEvent { aggregate, seq_num, .. } = event;
        ReadEvent { event_id, aggregate, seq_num, messages }
    });
    Ok(Batch { unreadable, events: events.collect(), through, ..Batch::default() })
}
