//! The repair of wrong snapshots.

use daybook_decider::Model;
use daybook_table::{AggregateKey, SnapshotItem, attributes, keys};
use jiff::Timestamp;

use super::codec::StoredSnapshot;
use super::put::{Replaces, put_or_existing, unchanged};
use super::take::SnapshotOutcome;
use crate::checksum;
use crate::error::{StoreError, if_condition_holds};
use crate::event_stream::EventStream;
use crate::item::{Item, row_key, text};
use crate::limits;
use crate::load::LoadOptions;
use crate::loaded::Loaded;
use crate::store::EventStore;

impl EventStore {
    /// Stores the aggregate's current state as its snapshot, folded from the first event without any snapshot, and
    /// replaces even one of the same event. It also corrects wrong kept snapshots, and deletes those that cannot be
    /// corrected.
    pub async fn rebuild_snapshot(
        &self,
        model: &dyn Model,
        key: &AggregateKey,
        now: Timestamp,
    ) -> Result<SnapshotOutcome, StoreError> {
        if model.full_history() {
            return Ok(SnapshotOutcome::NotNeeded);
        }
        let stream = self.stream(model, key);
        // Read before the events: a kept snapshot that is then beyond the events is of an event that does not exist.
        let kept = stream.kept_snapshots_oldest_first().await?;
        let loaded = stream.load(LoadOptions::REBUILD).await?;
        if loaded.version() > 0 {
            stream.correct_kept_snapshots(kept, &loaded, now).await?;
        }
        stream.store_snapshot(&loaded, Replaces::OlderOrSame, now).await
    }
}

impl EventStream<'_> {
    async fn kept_snapshots_oldest_first(&self) -> Result<Vec<Item>, StoreError> {
        let rows = self.kept_snapshots(keys::MAX_SEQ_NUM).scan_index_forward(true).into_paginator().items().send();
        rows.collect::<Result<_, _>>().await.map_err(|error| StoreError::of_call("read the kept snapshots", error))
    }

    /// Corrects each kept snapshot that is not the state after its event, or not as it was written. One that cannot be
    /// corrected, because its event does not exist or it cannot be read, is deleted. Intact ones of another state version
    /// stay unchanged. `last` is the aggregate, folded from its first event after the kept snapshots were read.
    ///
    /// It reads the events up to the last kept snapshot once more.
    async fn correct_kept_snapshots(&self, kept: Vec<Item>, last: &Loaded, now: Timestamp) -> Result<(), StoreError> {
        let mut folded = self.model.before_first_event();
        for row in kept {
            let snapshot = match self.decode_snapshot(row.clone()).await? {
                StoredSnapshot::OfOtherStateVersion { .. } if checksum::is_valid(&row) => continue,
                StoredSnapshot::Usable(snapshot) if (1..=last.version()).contains(&snapshot.version()) => snapshot,
                StoredSnapshot::Usable(_)
                | StoredSnapshot::OfOtherStateVersion { .. }
                | StoredSnapshot::Unreadable(_) => {
                    self.delete_kept_snapshot(&row).await?;
                    continue;
                }
            };
            folded = if snapshot.version() == last.version() {
                last.folded.clone()
            } else {
                self.fold_on(folded, last.version(), snapshot.version()).await?
            };
            let right = self.loaded(folded.clone())?;
            let is_right = checksum::is_valid(&row)
                && snapshot.message_seq() == folded.message_seq()
                && self.model.state(&snapshot).is_ok_and(|state| state == *right.state);
            if !is_right {
                self.correct(&row, &right, now).await?;
            }
        }
        Ok(())
    }

    /// Puts the right state into a kept snapshot. Its TTL does not change.
    async fn correct(&self, row: &Item, right: &Loaded, now: Timestamp) -> Result<(), StoreError> {
        let sk = keys::kept_snapshot_sk(right.version());
        let mut item = self.snapshot_row(&SnapshotItem { sk, ..self.encode_snapshot(right, now).await? })?;
        item.extend(row.get(attributes::TTL).map(|ttl| (attributes::TTL.to_owned(), ttl.clone())));
        if limits::item_size(&item) > limits::MAX_ITEM {
            return self.delete_kept_snapshot(row).await;
        }
        // When the condition fails, another snapshot was stored in the meantime, and is right.
        put_or_existing(self.put_over(item, row)).await.map(drop)
    }

    async fn delete_kept_snapshot(&self, row: &Item) -> Result<(), StoreError> {
        let (unchanged, values) = unchanged(row);
        let deletion = self.store.client.delete_item();
        let result = deletion
            .table_name(&self.store.settings.table_name)
            .set_key(Some(row_key(keys::pk(self.key), text(row, attributes::SK).to_owned())))
            .condition_expression(unchanged)
            .set_expression_attribute_values((!values.is_empty()).then_some(values))
            .send()
            .await;
        // When the condition fails, another snapshot was stored in the meantime, and stays.
        if_condition_holds("delete a kept snapshot", result).map(drop)
    }
}
