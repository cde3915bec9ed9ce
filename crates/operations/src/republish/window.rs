//! The events of a time window, found in the index, in the order of their ids.

use std::collections::VecDeque;

use clap::Args;
use daybook_admin::{AdminCalls, IndexEntry, IndexPartition};
use daybook_decider::Registry;
use daybook_decider::record::timestamp;
use daybook_event_store::{EventStore, StoreError, UnreadableRow};
use daybook_table::{AggregateKey, keys};
use futures_util::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use ulid::Ulid;

use crate::error::OperatorError;
use crate::moment::Moment;
use crate::selection::{AggregateName, models};

/// Maximum events of all partitions together that are read ahead, at about 200 bytes each.
const MAX_READ_AHEAD: usize = 16_000;

/// Number of selected events that a chunk has at least, except the last one.
const CHUNK: usize = 4_000;

const CONCURRENCY: usize = 16;

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
    pub aggregates: Vec<AggregateName>,
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
        let of_aggregates = self.aggregates.iter().map(|AggregateName(key)| key.aggregate_type.clone());
        let models = models(registry, &self.types.iter().cloned().chain(of_aggregates).collect::<Vec<_>>())?;
        let mut names: Vec<&str> =
            models.iter().flat_map(|model| model.stored_events()).map(|(name, _)| name).collect();
        names.extend(self.event_types.iter().map(String::as_str));
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    fn selects(&self, key: &AggregateKey) -> bool {
        let by_name = self.aggregates.is_empty() || self.aggregates.iter().any(|name| name.0 == *key);
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

/// A part of the window, which follows the part before it.
#[derive(Debug, Default)]
pub(super) struct Chunk {
    /// The selected events, in the order of their ids. So those of an aggregate are in the order of their numbers.
    pub(super) events: Vec<IndexEntry>,
    pub(super) unreadable: Vec<UnreadableRow>,
    /// The id up to which the chunk contains all events: the last id of the window in the last chunk, none in a part of a chunk
    /// that another one follows.
    pub(super) through: Option<Ulid>,
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
    pub(super) async fn next_chunk(&mut self) -> Result<Option<Chunk>, StoreError> {
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
        let pages: Vec<_> = stream::iter(reads).buffer_unordered(CONCURRENCY).try_collect().await?;
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
