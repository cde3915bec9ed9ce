//! Batches of messages: the outbox rows of the events of a window, in the order of the events.
//!
//! Invariant: memory is bounded by two batches, one that is sent and one that is read, and by the reads under way.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::num::NonZeroU32;
use std::rc::Rc;

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

const CONCURRENCY: usize = 16;

/// The bytes that one read should return. Large rows are therefore read in small numbers.
const READ_BYTES: usize = 1024 * 1024;

const READ_ROWS: usize = 100;
const READ_EVENTS: usize = 100;

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

struct Group {
    unreadable: Vec<UnreadableRow>,
    events: Vec<(Ulid, PublishedEvent)>,
    /// Set on the last group of a chunk.
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
        let sizes = Rc::new(RowSizes::default());
        let groups = Groups { window, events: VecDeque::new(), unreadable: Vec::new(), through: Ulid::nil() };
        let of_reads = Rc::clone(&sizes);
        let groups = stream::try_unfold(groups, move |mut groups| {
            let sizes = Rc::clone(&sizes);
            async move {
                let group = if interrupt.is_cancelled() { None } else { groups.next(&sizes).await? };
                Ok::<_, StoreError>(group.map(|group| (group, groups)))
            }
        });
        let reads = groups.map_ok(move |group| read(store, group, Rc::clone(&of_reads))).try_buffered(CONCURRENCY);
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
                    let (more_rows, more_bytes) = read.size();
                    (rows, bytes) = (rows + more_rows, bytes + more_bytes);
                    batch.unreadable.extend(read.unreadable);
                    batch.events.extend(read.events);
                    batch.through = read.through;
                }
                Some(Err(error)) => {
                    batch.error = Some(error);
                    batch.is_last = true;
                    break;
                }
                None => {
                    batch.is_last = true;
                    break;
                }
            }
        }
        batch
    }
}

impl Batch {
    fn size(&self) -> (usize, usize) {
        let rows = self.events.iter().flat_map(|event| &event.messages.rows);
        rows.fold((0, 0), |(rows, bytes), row| (rows + 1, bytes + row.detail.len()))
    }
}

struct RowSizes {
    rows: Cell<usize>,
    bytes: Cell<usize>,
}

impl Default for RowSizes {
    /// The first reads are small, because the size of the rows is not known yet.
    fn default() -> Self {
        Self { rows: Cell::new(1), bytes: Cell::new(READ_BYTES / 10) }
    }
}

impl RowSizes {
    fn add(&self, (rows, bytes): (usize, usize)) {
        self.rows.set(self.rows.get() + rows);
        self.bytes.set(self.bytes.get() + bytes);
    }

    fn rows_of_a_read(&self) -> usize {
        (READ_BYTES.saturating_mul(self.rows.get()) / self.bytes.get().max(1)).clamp(2, READ_ROWS)
    }
}

/// The events of a window, cut into groups.
struct Groups<'a> {
    window: WindowReader<'a>,
    /// The events of the chunk that are in no group yet.
    events: VecDeque<(Ulid, PublishedEvent)>,
    /// The unreadable rows of the chunk, for its first group.
    unreadable: Vec<UnreadableRow>,
    /// The end of the chunk, for its last group.
    through: Ulid,
}

impl Groups<'_> {
    async fn next(&mut self, sizes: &RowSizes) -> Result<Option<Group>, StoreError> {
        if self.events.is_empty() {
            let Some(Chunk { events, unreadable, through }) = self.window.next_chunk().await? else { return Ok(None) };
            self.events = with_counts(events).collect();
            (self.unreadable, self.through) = (unreadable, through);
        }
        let max_rows = sizes.rows_of_a_read();
        let mut group = Group { unreadable: std::mem::take(&mut self.unreadable), events: Vec::new(), through: None };
        let mut rows = 0;
        while rows < max_rows && group.events.len() < READ_EVENTS {
            let Some(event) = self.events.pop_front() else { break };
            rows += event.1.count().unwrap_or(1);
            group.events.push(event);
        }
        group.through = self.events.is_empty().then_some(self.through);
        Ok(Some(group))
    }
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

async fn read(store: &EventStore, group: Group, sizes: Rc<RowSizes>) -> Result<Batch, StoreError> {
    let (ids, events): (Vec<_>, Vec<_>) = group.events.into_iter().unzip();
    let messages = store.admin().messages_of(&events).await?;
    let events = ids.into_iter().zip(events).zip(messages).map(|((event_id, event), messages)| {
        let PublishedEvent { aggregate, seq_num, .. } = event;
        ReadEvent { event_id, aggregate, seq_num, messages }
    });
    let read =
        Batch { unreadable: group.unreadable, events: events.collect(), through: group.through, ..Batch::default() };
    sizes.add(read.size());
    Ok(read)
}
