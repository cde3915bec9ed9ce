//! Feeds: the events of one aggregate in order, and the events of one type across all aggregates by time.
//!
//! Invariant: a reader of the events of a type who follows the cursors sees every event exactly once. Events are
//! ordered by the time of their decision, but become visible later. So a feed ends before the time `settled_up_to`,
//! because events after it may still appear.

use daybook_decider::{Json, RecordedEvent, personal};
use daybook_table::{AggregateKey, EventItem, attributes, keys};
use futures_util::future::try_join_all;
use jiff::Timestamp;
use ulid::Ulid;

use crate::error::{Cause, StoreError};
use crate::item::{Item, row_key, text};
use crate::page::{Page, Slice, UnreadableRow};
use crate::store::EventStore;

#[derive(Clone, Debug, PartialEq)]
pub struct FeedEvent {
    pub aggregate: AggregateKey,
    pub event: RecordedEvent,
}

impl EventStore {
    /// Up to `limit` events of an aggregate after number `after`.
    pub async fn events(
        &self,
        key: &AggregateKey,
        after: u64,
        limit: usize,
    ) -> Result<Page<RecordedEvent, u64>, StoreError> {
        let Page { items, unreadable, cursor, more } = self.published_or_not(key, after, limit).await?;
        Ok(Page { items: items.into_iter().map(|(event, _)| event).collect(), unreadable, cursor, more })
    }

    /// The same, each with whether it was published: an event that was imported without its messages was not.
    pub async fn published_or_not(
        &self,
        key: &AggregateKey,
        after: u64,
        limit: usize,
    ) -> Result<Page<(RecordedEvent, bool), u64>, StoreError> {
        if after >= keys::MAX_SEQ_NUM {
            return Ok(Page::empty(after));
        }
        let query = self.rows_between(key, keys::event_sk(after + 1), keys::event_sk(keys::MAX_SEQ_NUM));
        let seq_num = |item: &Item| keys::event_seq_num(text(item, attributes::SK));
        let mut slice = Slice::read("read a feed", query, limit, seq_num, published).await?;
        // A query during a transaction may return some of its rows and not others. The page ends before the first
        // missing event, so that the next page does not skip it.
        let following = (after + 1..).zip(&slice.rows).take_while(|(next, (seq_num, _))| seq_num == next).count();
        slice.more |= following < slice.rows.len();
        slice.rows.truncate(following);
        let mut page = slice.into_page(limit, after, |(event, _)| weight(event));
        self.open_page(&mut page, |(event, _)| (key.clone(), event)).await?;
        Ok(page)
    }

    /// The time before which every event is visible in the index, for a read after `now`: `now` minus the `feed_delay` of
    /// the settings, or the oldest decision in flight of this process if that is earlier. In whole milliseconds like the
    /// times of events.
    pub fn settled_up_to(&self, now: Timestamp) -> Timestamp {
        let delay = i64::try_from(self.settings.feed_delay.as_millis()).unwrap_or(i64::MAX);
        let in_flight = self.in_flight.oldest().unwrap_or(Timestamp::MAX);
        let settled = now.as_millisecond().saturating_sub(delay).min(in_flight.as_millisecond());
        Timestamp::from_millisecond(settled).unwrap_or(Timestamp::UNIX_EPOCH)
    }

    /// Up to `limit` events of a type after the event `after` and before the time `settled_up_to`, by their ids and so
    /// by time; of several types together, for an event that was stored under other names before.
    /// [`settled_up_to`](Self::settled_up_to) computes that time.
    ///
    /// A cursor that is not before `settled_up_to`, from a reader whose clock is ahead, leads to an empty page with the
    /// same cursor until that time is settled too.
    pub async fn feed(
        &self,
        event_types: &[&str],
        after: Option<Ulid>,
        limit: usize,
        settled_up_to: Timestamp,
    ) -> Result<Page<FeedEvent, Ulid>, StoreError> {
        let cursor = after.unwrap_or(Ulid::nil());
        let first = after.map_or(Some(Ulid::nil()), keys::id_after);
        let (Some(first), Some(last)) = (first, last_before(settled_up_to)) else { return Ok(Page::empty(cursor)) };
        // DynamoDB rejects a range whose end is before its beginning.
        if first > last {
            return Ok(Page::empty(cursor));
        }
        let shards = self.settings.event_type_shards;
        let partitions: Vec<_> = event_types.iter().flat_map(|event_type| keys::gsi1pks(event_type, shards)).collect();
        // Each shard of a type is read for twice its share of a page; when a shard has more events than that, the page
        // is shorter.
        let share = limit.min(limit.saturating_mul(2 * event_types.len()).div_ceil(partitions.len().max(1)));
        let event_id = |item: &Item| keys::gsi1sk_event_id(text(item, attributes::GSI1SK));
        let read = partitions.into_iter().map(|partition| {
            let query = self.index_between(partition, first, last);
            Slice::read("read a feed", query, share, event_id, feed_event)
        });
        let merged = Slice::merged(try_join_all(read).await?);
        let mut page = merged.into_page(limit, cursor, |found| weight(&found.event));
        self.open_page(&mut page, |found| (found.aggregate.clone(), &mut found.event)).await?;
        Ok(page)
    }

    /// Opens the personal values of a page. Events whose values cannot be opened become unreadable rows.
    async fn open_page<T, C>(
        &self,
        page: &mut Page<T, C>,
        event: impl Fn(&mut T) -> (AggregateKey, &mut RecordedEvent),
    ) -> Result<(), StoreError> {
        let subjects = page.items.iter_mut().flat_map(|item| personal::subjects(event(item).1.data.text()));
        self.sealing.prepare(subjects.collect()).await?;
        let mut index = 0;
        while index < page.items.len() {
            let (key, event) = event(&mut page.items[index]);
            let seq_num = event.seq_num;
            match self.sealing.open([(keys::pk(&key), &mut event.data)].into_iter()).await {
                Ok(()) => index += 1,
                Err(StoreError::Corrupt { source, .. }) => {
                    page.items.remove(index);
                    let row = row_key(keys::pk(&key), keys::event_sk(seq_num));
                    page.unreadable.push(UnreadableRow::of(&row).because(source));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The last id that an event before a time can have. Ids have whole milliseconds, so an event with the same millisecond
/// as that time may have been decided after it.
fn last_before(time: Timestamp) -> Option<Ulid> {
    let last = u64::try_from(time.as_millisecond()).ok()?.checked_sub(1)?;
    Some(Ulid::from_parts(last, u128::MAX))
}

fn feed_event(item: Item) -> Result<FeedEvent, Cause> {
    let aggregate = keys::aggregate_of_pk(text(&item, attributes::PK));
    let aggregate = aggregate.ok_or("the partition key of an event is not that of an aggregate")?;
    let (event, _) = published(item)?;
    Ok(FeedEvent { aggregate, event })
}

fn published(item: Item) -> Result<(RecordedEvent, bool), Cause> {
    let item: EventItem = serde_dynamo::from_item(item)?;
    let is_published = item.not_published != Some(true);
    Ok((item.into_event()?, is_published))
}

/// The approximate bytes of an event as JSON.
fn weight(event: &RecordedEvent) -> usize {
    /// Names, numbers and times.
    const ENVELOPE: usize = 512;
    ENVELOPE + event.data.text().len() + Json::of(&event.meta).map_or(0, |meta| meta.text().len())
}
