//! The repair of wrong snapshots.

use daybook_decider::Model;
use daybook_table::{AggregateKey, attributes, keys};
use jiff::Timestamp;

use super::codec::StoredSnapshot;
use super::put::Replaces;
use super::take::SnapshotOutcome;
use crate::checksum;
use crate::error::StoreError;
use crate::event_stream::EventStream;
use crate::item::{row_key, text};
use crate::load::LoadOptions;
use crate::store::EventStore;

impl EventStore {
    /// Stores the aggregate's current state as its snapshot, folded from the first event without any snapshot, and
    /// replaces even one of the same event. It also deletes the kept snapshots that this release would use.
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
        stream.delete_kept_snapshots().await?;
        let loaded = stream.load(LoadOptions::REBUILD).await?;
        stream.store_snapshot(&loaded, Replaces::OlderOrSame, now).await
    }
}

impl EventStream<'_> {
    /// Deletes the kept snapshots of this state version, and damaged ones. Those of other releases stay.
    async fn delete_kept_snapshots(&self) -> Result<(), StoreError> {
        let mut rows = self.kept_snapshots().into_paginator().items().send();
        while let Some(row) = rows.next().await {
            let row = row.map_err(|error| StoreError::of_call("read the kept snapshots", error))?;
            let sk = text(&row, attributes::SK).to_owned();
            let is_valid = checksum::is_valid(&row);
            if is_valid && matches!(self.decode_snapshot(row).await?, StoredSnapshot::OfOtherStateVersion { .. }) {
                continue;
            }
            let deletion = self.store.client.delete_item().table_name(&self.store.settings.table_name);
            let deletion = deletion.set_key(Some(row_key(keys::pk(self.key), sk)));
            deletion.send().await.map_err(|error| StoreError::of_call("delete a kept snapshot", error))?;
        }
        Ok(())
    }
}
