//! Feeds: the events of one aggregate in order, and the events of one type across all aggregates by time.

use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use daybook_decider::{Meta, RecordedEvent};
use daybook_table::{AggregateKey, keys};
use futures_util::future::try_join_all;
use ulid::Ulid;

use crate::error::StoreError;
use crate::item::{Item, event_item};
use crate::store::EventStore;

/// Maximum bytes of a page's data. With its envelopes, and with every quote escaped, a page fits a Lambda response of
/// 6 MB.
const MAX_PAGE: usize = 2 * 1024 * 1024;

/// One page of a feed.
#[derive(Clone, Debug, PartialEq)]
pub struct Page<T, C> {
    /// The items in order; fewer than requested when events are large.
    pub items: Vec<T>,
    /// The cursor of the next page; `None` when this was the last page.
    pub next: Option<C>,
}

/// An event with the aggregate that it belongs to.
#[derive(Clone, Debug, PartialEq)]
pub struct FeedEvent {
    /// The aggregate.
    pub aggregate: AggregateKey,
    /// The event.
    pub event: RecordedEvent,
}

impl EventStore {
    /// Up to `limit` events of an aggregate after number `after`.
    ///
    /// # Errors
    ///
    /// See [`StoreError`].
    pub async fn events(
        &self,
        key: &AggregateKey,
        after: u64,
        limit: usize,
    ) -> Result<Page<RecordedEvent, u64>, StoreError> {
        if after >= keys::MAX_SEQ_NUM {
            return Ok(Page { items: Vec::new(), next: None });
        }
        let query = self.rows_between(key, keys::event_sk(after + 1), keys::event_sk(keys::MAX_SEQ_NUM));
        let mut slice = Slice::read(query, limit).await?.map(|item| Ok(event_item(item)?.into_event()?))?;
        // A query during a transaction may return some of its rows and not others. The page ends before the first
        // missing event, so that the next page does not skip it.
        let following = (after + 1..).zip(&slice.items).take_while(|(next, event)| event.seq_num == *next).count();
        slice.more |= following < slice.items.len();
        slice.items.truncate(following);
        Ok(slice.into_page(limit, |event| event, |event| event.seq_num))
    }

    /// Up to `limit` events of a type after the event `after`, by the time of their ids.
    ///
    /// The index lags behind the table for moments, and writers' clocks differ: an event can appear before a cursor
    /// that was returned within the same second. The bus misses no event; this feed is for reading the past.
    ///
    /// # Errors
    ///
    /// See [`StoreError`].
    pub async fn feed(
        &self,
        event_type: &str,
        after: Option<Ulid>,
        limit: usize,
    ) -> Result<Page<FeedEvent, Ulid>, StoreError> {
        self.merged_feed(&[event_type], after, limit).await
    }

    /// Like [`feed`](Self::feed), for several types together: for an event that was stored under other names before.
    ///
    /// # Errors
    ///
    /// See [`StoreError`].
    pub async fn merged_feed(
        &self,
        event_types: &[&str],
        after: Option<Ulid>,
        limit: usize,
    ) -> Result<Page<FeedEvent, Ulid>, StoreError> {
        let Ok(first) = after.map_or(Ok(Ulid::nil()), |after| after.increment()) else {
            return Ok(Page { items: Vec::new(), next: None });
        };
        let shards = self.settings.event_type_shards;
        let partitions: Vec<_> = event_types.iter().flat_map(|event_type| keys::gsi1pks(event_type, shards)).collect();
        // Each shard of a type is read for twice its share of a page; when a shard has more events than that, the page
        // is shorter.
        let share = limit.min(limit.saturating_mul(2 * event_types.len()).div_ceil(partitions.len().max(1)));
        let queries = partitions.into_iter().map(|partition| self.index_between(partition, first, Ulid::max()));
        let read = queries.map(|query| Slice::read(query, share));
        let mut merged = Slice { items: Vec::new(), more: false };
        // After the end of a slice that has more events, the merged order is incomplete: the events that are missing
        // from that slice may come first.
        let mut horizon = None;
        for slice in try_join_all(read).await? {
            let slice = slice.map(feed_event)?;
            if slice.more {
                let end = slice.items.last().map(|found| found.event.event_id);
                horizon = end.min(horizon.or(end));
                merged.more = true;
            }
            merged.items.extend(slice.items);
        }
        merged.items.sort_by_key(|found| found.event.event_id);
        merged.items.retain(|found| horizon.is_none_or(|horizon| found.event.event_id <= horizon));
        Ok(merged.into_page(limit, |found| &found.event, |found| found.event.event_id))
    }
}

fn feed_event(item: Item) -> Result<FeedEvent, StoreError> {
    let item = event_item(item)?;
    let aggregate = AggregateKey::from_pk(&item.pk).ok_or_else(|| StoreError::Corrupt {
        item: item.pk.clone(),
        source: "the partition key of an event is not that of an aggregate".into(),
    })?;
    Ok(FeedEvent { aggregate, event: item.into_event()? })
}

/// The result of one query, and whether more items follow.
struct Slice<T> {
    items: Vec<T>,
    more: bool,
}

impl Slice<Item> {
    /// The first items of a query: a maximum of `limit` plus one, or 1 MB.
    async fn read(query: QueryFluentBuilder, limit: usize) -> Result<Self, StoreError> {
        // The extra item shows whether there are more.
        let query = query.limit(i32::try_from(limit.saturating_add(1)).unwrap_or(i32::MAX));
        let page = query.send().await.map_err(|error| StoreError::of_call("read a feed", error))?;
        Ok(Self { items: page.items.unwrap_or_default(), more: page.last_evaluated_key.is_some() })
    }
}

impl<T> Slice<T> {
    fn map<U>(self, read: impl Fn(T) -> Result<U, StoreError>) -> Result<Slice<U>, StoreError> {
        Ok(Slice { items: self.items.into_iter().map(read).collect::<Result<_, _>>()?, more: self.more })
    }

    /// Truncates to `limit` items and [`MAX_PAGE`] bytes.
    fn into_page<C>(
        mut self,
        limit: usize,
        event: impl Fn(&T) -> &RecordedEvent,
        cursor: impl Fn(&T) -> C,
    ) -> Page<T, C> {
        let mut bytes_left = MAX_PAGE;
        let fitting = self.items.iter().take_while(|item| {
            let bytes = weight(event(item));
            let fits = bytes <= bytes_left;
            bytes_left = bytes_left.saturating_sub(bytes);
            fits
        });
        let count = fitting.count().min(limit);
        let more = self.more || count < self.items.len();
        self.items.truncate(count);
        let next = self.items.last().filter(|_| more).map(cursor);
        Page { items: self.items, next }
    }
}

/// The approximate bytes of an event in a response.
fn weight(event: &RecordedEvent) -> usize {
    /// Names, numbers and times.
    const ENVELOPE: usize = 512;
    let Meta { actor, source_ip, correlation_id, causation_id, traceparent, trace_header } = &event.meta;
    let meta = [actor, source_ip, correlation_id, causation_id, traceparent, trace_header];
    ENVELOPE + event.data.text().len() + meta.into_iter().flatten().map(String::len).sum::<usize>()
}
