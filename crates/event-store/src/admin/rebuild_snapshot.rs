//! The cure for snapshots that are wrong.

use daybook_decider::Model;
use daybook_table::{AggregateKey, SnapshotItem, attributes, keys};
use jiff::Timestamp;

use super::handle::Admin;
use crate::error::{StoreError, if_condition_holds};
use crate::event_stream::EventStream;
use crate::item::{Item, row_key, text};
use crate::limits;
use crate::load::LoadOptions;
use crate::loaded::Loaded;
use crate::snapshot::{Replaces, SnapshotOutcome, StoredSnapshot, put_or_existing, unchanged};

impl Admin<'_> {
    /// Stores the aggregate's present state as its snapshot, folded from the first event without any snapshot, and put even over
    /// one that is as new. Kept ones that are wrong are corrected too, and deleted where they cannot be.
    ///
    /// # Errors
    ///
    /// See [`StoreError`].
    pub async fn rebuild_snapshot(
        &self,
        model: &dyn Model,
        key: &AggregateKey,
        now: Timestamp,
    ) -> Result<SnapshotOutcome, StoreError> {
        if model.full_history() {
            return Ok(SnapshotOutcome::NotNeeded);
        }
        let stream = self.store.stream(model, key);
        // Before the events: a snapshot that is beyond them then is of one that is not there.
        let kept = stream.kept_oldest_first().await?;
        let loaded = stream.load(LoadOptions::REBUILD).await?;
        if loaded.version() > 0 {
            stream.correct_kept(kept, &loaded, now).await?;
        }
        stream.store_snapshot(&loaded, Replaces::OlderOrSame, now).await
    }
}

impl EventStream<'_> {
    async fn kept_oldest_first(&self) -> Result<Vec<Item>, StoreError> {
        let rows = self.kept_up_to(keys::MAX_SEQ_NUM).scan_index_forward(true).into_paginator().items().send();
        rows.collect::<Result<_, _>>().await.map_err(|error| StoreError::of_call("read the kept snapshots", error))
    }

    /// Corrects each of the kept snapshots that is not the state after its event. One that cannot be corrected, because
    /// there is no such event or nobody can read it, is deleted. Those of another state version are left alone. `last` is
    /// the aggregate, folded from its first event after they were read.
    ///
    /// It reads the events up to the last that is needed once more.
    async fn correct_kept(&self, kept: Vec<Item>, last: &Loaded, now: Timestamp) -> Result<(), StoreError> {
        let mut folded = self.model.before_first_event();
        for row in kept {
            let snapshot = match self.decode_snapshot(row.clone()) {
                StoredSnapshot::OfOtherStateVersion { .. } => continue,
                StoredSnapshot::Usable(snapshot) if (1..=last.version()).contains(&snapshot.version()) => snapshot,
                StoredSnapshot::Usable(_) | StoredSnapshot::Unreadable(_) => {
                    self.delete_kept(&row).await?;
                    continue;
                }
            };
            folded = if snapshot.version() == last.version() {
                last.folded.clone()
            } else {
                self.fold_on(folded, last.version(), snapshot.version()).await?
            };
            let right = self.loaded(folded.clone())?;
            let is_right = snapshot.message_seq() == folded.message_seq()
                && self.model.state(&snapshot).is_ok_and(|state| state == *right.state);
            if !is_right {
                self.correct(&row, &right, now).await?;
            }
        }
        Ok(())
    }

    /// Puts the right state into a kept snapshot, which expires when it would have.
    async fn correct(&self, row: &Item, right: &Loaded, now: Timestamp) -> Result<(), StoreError> {
        let sk = keys::kept_snapshot_sk(right.version());
        let mut item = self.snapshot_row(&SnapshotItem { sk, ..self.encode_snapshot(right, now)? })?;
        item.extend(row.get(attributes::TTL).map(|ttl| (attributes::TTL.to_owned(), ttl.clone())));
        if limits::item_size(&item) > limits::MAX_ITEM {
            return self.delete_kept(row).await;
        }
        // If another is there by now, it is one that was taken meanwhile.
        put_or_existing(self.put_over(item, row)).await.map(drop)
    }

    async fn delete_kept(&self, row: &Item) -> Result<(), StoreError> {
        let (unchanged, values) = unchanged(row);
        let deletion = self.store.client.delete_item();
        let result = deletion
            .table_name(&self.store.settings.table_name)
            .set_key(Some(row_key(self.key.pk(), text(row, attributes::SK).to_owned())))
            .condition_expression(unchanged)
            .set_expression_attribute_values((!values.is_empty()).then_some(values))
            .send()
            .await;
        // If another is there by now, it stays.
        if_condition_holds("delete a kept snapshot", result).map(drop)
    }
}
