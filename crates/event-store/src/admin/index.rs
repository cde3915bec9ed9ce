//! The index alone: the positions of the events of a type, without their data. A damaged event is found like any
//! other, as long as its keys are intact.

use std::fmt;

use daybook_table::{AggregateKey, attributes, keys};
use ulid::Ulid;

use super::handle::Admin;
use crate::error::StoreError;
use crate::feed::Page;
use crate::item::{Item, number, text};

/// Maximum items of a query, so that even a page of small items is returned soon.
const PAGE: i32 = 1000;

/// One partition of the index: the events of a type, or a shard of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexPartition(String);

impl fmt::Display for IndexPartition {
    /// The event type and its shard, if it has one: `OrderPlaced#3`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(keys::gsi1pk_name(&self.0))
    }
}

/// The position of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// Its aggregate.
    pub aggregate: AggregateKey,
    /// Its number.
    pub seq_num: u64,
    /// Its id, which also contains the time of its decision.
    pub event_id: Ulid,
    /// The number of its aggregate's messages up to and including it, if that can be read.
    pub message_seq: Option<u64>,
}

impl Admin<'_> {
    /// The partitions that hold the events of these types, with `EVENT_TYPE_SHARDS` shards for each.
    pub fn index_partitions(&self, event_types: &[&str]) -> Vec<IndexPartition> {
        let shards = self.store.settings.event_type_shards;
        event_types.iter().flat_map(|event_type| keys::gsi1pks(event_type, shards)).map(IndexPartition).collect()
    }

    /// The events of a partition with ids from `first` to `last`, both included, ordered by id: a maximum of a
    /// thousand or 1 MB. The next page starts at the id after `next`.
    ///
    /// It costs the capacity of whole events, because the index holds them.
    ///
    /// # Errors
    ///
    /// See [`StoreError`]; [`StoreError::Corrupt`] when the keys of an item are not those of an event.
    pub async fn index(
        &self,
        partition: &IndexPartition,
        first: Ulid,
        last: Ulid,
    ) -> Result<Page<IndexEntry, Ulid>, StoreError> {
        let wanted = [attributes::PK, attributes::SK, attributes::GSI1SK, attributes::MESSAGE_SEQ].join(", ");
        let page = self
            .store
            .index_between(partition.0.clone(), first, last)
            .projection_expression(wanted)
            .limit(PAGE)
            .send()
            .await
            .map_err(|error| StoreError::of_call("read the index", error))?;
        let more = page.last_evaluated_key.is_some();
        let items = page.items.unwrap_or_default().into_iter().map(index_entry).collect::<Result<Vec<_>, _>>()?;
        let next = items.last().filter(|_| more).map(|entry| entry.event_id);
        Ok(Page { items, next })
    }
}

fn index_entry(item: Item) -> Result<IndexEntry, StoreError> {
    let [pk, sk, gsi1sk] = [attributes::PK, attributes::SK, attributes::GSI1SK].map(|name| text(&item, name));
    let read = || {
        Some(IndexEntry {
            aggregate: AggregateKey::from_pk(pk)?,
            seq_num: sk.strip_prefix(keys::EVENT_PREFIX)?.parse().ok()?,
            event_id: Ulid::from_string(gsi1sk.strip_prefix(keys::EVENT_PREFIX)?).ok()?,
            message_seq: number(&item, attributes::MESSAGE_SEQ),
        })
    };
    read().ok_or_else(|| StoreError::Corrupt {
        item: format!("item {pk} {sk}"),
        source: format!("its keys are not those of an event; its index sort key is {gsi1sk:?}").into(),
    })
}
