//! Snapshots of an aggregate's current state, and the repair of wrong ones.

use daybook_decider::Model;
use daybook_table::{AggregateKey, SnapshotItem, attributes, keys};
use jiff::Timestamp;

use super::codec::StoredSnapshot;
use super::put::Replaces;
use crate::error::{StoreError, if_condition_holds};
use crate::event_stream::EventStream;
use crate::item::{row_key, text};
use crate::load::LoadOptions;
use crate::store::EventStore;
use crate::{checksum, limits};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotOutcome {
    /// It is of this version: the number of the last event that is folded into it.
    Taken { version: u64 },
    /// A snapshot that is at least as new is stored already: a late, repeated or reordered request changes nothing.
    NotNewer,
    /// The state does not fit an item even when compressed. The aggregate works without a snapshot.
    TooLarge {
        /// The size that the item would have, in bytes.
        bytes: usize,
    },
    /// The aggregate cannot use a snapshot: it has no events, or needs its full history.
    NotNeeded,
}

impl EventStore {
    /// Stores the aggregate's current state as its snapshot, unless one that is at least as new exists.
    pub async fn take_snapshot(
        &self,
        model: &dyn Model,
        key: &AggregateKey,
        now: Timestamp,
    ) -> Result<SnapshotOutcome, StoreError> {
        self.stream(model, key).snapshot(Replaces::Older, now).await
    }

    /// Stores the aggregate's current state as its snapshot, folded from the first event without any snapshot, and
    /// replaces even one of the same event. It also deletes the kept snapshots that this release would use, once
    /// all events are folded.
    pub async fn rebuild_snapshot(
        &self,
        model: &dyn Model,
        key: &AggregateKey,
        now: Timestamp,
    ) -> Result<SnapshotOutcome, StoreError> {
        self.stream(model, key).snapshot(Replaces::OlderOrSame, now).await
    }
}

impl EventStream<'_> {
    async fn snapshot(&self, replaces: Replaces, now: Timestamp) -> Result<SnapshotOutcome, StoreError> {
        if self.model.full_history() {
            return Ok(SnapshotOutcome::NotNeeded);
        }
        let rebuilds = replaces == Replaces::OlderOrSame;
        let loaded = self.load(if rebuilds { LoadOptions::REBUILD } else { LoadOptions::default() }).await?;
        let version = loaded.version();
        if version == 0 {
            return Ok(SnapshotOutcome::NotNeeded);
        }
        // Only now: when an event cannot be read, a kept snapshot may be all that is left of the events before it.
        if rebuilds {
            self.delete_kept_snapshots().await?;
        }
        let latest = self.encode_snapshot(&loaded, now).await?;
        // The largest form of the item: as a kept snapshot.
        let sk = keys::kept_snapshot_sk(version);
        let kept = SnapshotItem { sk, ttl: Some(now.as_second()), ..latest.clone() };
        let bytes = limits::item_size(&self.snapshot_row(&kept)?);
        if bytes > limits::MAX_ITEM {
            return Ok(SnapshotOutcome::TooLarge { bytes });
        }
        let stored = self.put_snapshot(&latest, replaces, now).await?;
        Ok(if stored { SnapshotOutcome::Taken { version } } else { SnapshotOutcome::NotNewer })
    }

    /// Deletes the kept snapshots of this state version, and damaged ones. Those of other releases stay.
    async fn delete_kept_snapshots(&self) -> Result<(), StoreError> {
        let mut rows = self.kept_snapshots().into_paginator().items().send();
        while let Some(row) = rows.next().await {
            let row = row.map_err(|error| StoreError::of_call("read the kept snapshots", error))?;
            let is_valid = checksum::is_valid(&row);
            let is_usable_by_others = is_valid
                && matches!(self.decode_snapshot(row.clone()).await?, StoredSnapshot::OfOtherStateVersion { .. });
            if is_usable_by_others {
                continue;
            }
            let (unchanged, values) = checksum::unchanged(row.get(attributes::CHECKSUM));
            let deletion = self.store.client.delete_item().table_name(&self.store.settings.table_name);
            let deletion = deletion
                .set_key(Some(row_key(keys::pk(self.key), text(&row, attributes::SK).to_owned())))
                .condition_expression(unchanged)
                .expression_attribute_names("#sum", attributes::CHECKSUM)
                .set_expression_attribute_values(values);
            // When the condition fails, another snapshot was stored in the meantime, and stays.
            if_condition_holds("delete a kept snapshot", deletion.send().await)?;
        }
        Ok(())
    }
}
