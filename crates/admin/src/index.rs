//! The index alone: the positions of the events of a type, without their data. A damaged event is found like any
//! other, as long as its keys are intact.

use std::fmt;

use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use aws_sdk_dynamodb::types::ReturnConsumedCapacity;
use daybook_event_store::internal::{Item, Slice, number, text};
use daybook_event_store::{Cause, Page, StoreError, StoreSettings};
use daybook_table::{AggregateKey, attributes, keys};
use ulid::Ulid;

use crate::handle::Admin;

/// One partition of the index: the events of a type, or a shard of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexPartition(String);

impl fmt::Display for IndexPartition {
    /// The event type and its shard, if it has one: `OrderPlaced#3`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(keys::gsi1pk_name(&self.0))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    pub aggregate: AggregateKey,
    pub seq_num: u64,
    /// Its id, which also contains the time of its decision.
    pub event_id: Ulid,
    /// The number of its aggregate's messages up to and including it, if that can be read.
    pub message_seq: Option<u64>,
    /// The same number before it, if that is known: the index does not show it.
    pub messages_before: Option<u64>,
}

impl Admin<'_> {
    /// The partitions that hold the events of these types, with `EVENT_TYPE_SHARDS` shards for each.
    pub fn index_partitions(&self, event_types: &[&str]) -> Vec<IndexPartition> {
        let shards = self.store.settings().event_type_shards;
        event_types.iter().flat_map(|event_type| keys::gsi1pks(event_type, shards)).map(IndexPartition).collect()
    }

    /// The partitions that hold events of these types only if writers have more shards than these settings: each with the
    /// number of its shard, up to the maximum of `EVENT_TYPE_SHARDS`.
    pub fn index_partitions_beyond(&self, event_types: &[&str]) -> Vec<(u32, IndexPartition)> {
        let (shards, most) = (self.store.settings().event_type_shards, *StoreSettings::EVENT_TYPE_SHARDS.end());
        let numbered = event_types.iter().flat_map(|event_type| keys::gsi1pks_beyond(event_type, shards, most));
        numbered.map(|(shard, partition)| (shard, IndexPartition(partition))).collect()
    }

    /// Whether a partition contains at least one row. It costs half a read unit for small events.
    pub async fn has_events(&self, partition: &IndexPartition) -> Result<bool, StoreError> {
        let query = self.store.index_between(partition.0.clone(), Ulid::nil(), Ulid::max());
        let query = query.projection_expression(attributes::PK).limit(1);
        let page = query.return_consumed_capacity(ReturnConsumedCapacity::Total).send().await;
        let page = page.map_err(|error| StoreError::of_call("read the index", error))?;
        Ok(!page.items().is_empty())
    }

    /// The events of a partition with ids from `first` to `last`, both included, ordered by id: a maximum of `limit` or 1 MB, and
    /// the rows whose keys are not those of an event. The next page starts at the id after the cursor. `limit` is 2 to 1,000.
    ///
    /// It costs the capacity of whole events, because the index holds them.
    pub async fn index(
        &self,
        partition: &IndexPartition,
        first: Ulid,
        last: Ulid,
        limit: usize,
    ) -> Result<Page<IndexEntry, Ulid>, StoreError> {
        // DynamoDB rejects a range whose end is before its beginning.
        if first > last {
            return Ok(Page::empty(first));
        }
        let query = self.positions(partition, first, last);
        let slice = Slice::read("read the index", query, limit - 1, event_id, index_entry).await?;
        Ok(slice.into_page(limit, first, |_| 0))
    }

    /// The latest `limit` events of a partition, the latest first: those before `before`, if it is given.
    pub async fn latest(
        &self,
        partition: &IndexPartition,
        before: Option<Ulid>,
        limit: usize,
    ) -> Result<Page<IndexEntry, Ulid>, StoreError> {
        let cursor = before.unwrap_or(Ulid::max());
        let last = before.map_or(Some(Ulid::max()), |before| u128::from(before).checked_sub(1).map(Ulid::from));
        let Some(last) = last else { return Ok(Page::empty(cursor)) };
        let query = self.positions(partition, Ulid::nil(), last).scan_index_forward(false);
        let slice = Slice::read("read the index", query, limit, event_id, index_entry).await?;
        Ok(slice.into_page(limit, cursor, |_| 0))
    }

    fn positions(&self, partition: &IndexPartition, first: Ulid, last: Ulid) -> QueryFluentBuilder {
        let wanted = [attributes::PK, attributes::SK, attributes::GSI1SK, attributes::MESSAGE_SEQ].join(", ");
        let query = self.store.index_between(partition.0.clone(), first, last).projection_expression(wanted);
        query.return_consumed_capacity(ReturnConsumedCapacity::Total)
    }
}

fn event_id(item: &Item) -> Option<Ulid> {
    keys::gsi1sk_event_id(text(item, attributes::GSI1SK))
}

fn index_entry(item: Item) -> Result<IndexEntry, Cause> {
    let [pk, sk] = [attributes::PK, attributes::SK].map(|name| text(&item, name));
    let read = || {
        Some(IndexEntry {
            aggregate: keys::aggregate_of_pk(pk)?,
            seq_num: keys::event_seq_num(sk)?,
            event_id: event_id(&item)?,
            message_seq: number(&item, attributes::MESSAGE_SEQ),
            messages_before: None,
        })
    };
    read().ok_or_else(|| "its keys are not those of an event".into())
}
