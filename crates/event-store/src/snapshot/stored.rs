//! Stored snapshots: which of them a fold starts from, and the form in which each contains a state.

use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use aws_sdk_dynamodb::types::AttributeValue;
use daybook_decider::record::timestamp;
use daybook_decider::{Folded, Json};
use daybook_table::{SnapshotItem, attributes, keys};
use jiff::Timestamp;

use crate::cache::Loaded;
use crate::checksum;
use crate::error::{Cause, StoreError};
use crate::item::Item;
use crate::packing::{pack, unpack};
use crate::store::EventStream;

#[derive(Debug)]
pub(super) enum StoredSnapshot {
    /// It holds a state of the current state version.
    Usable(Folded),
    /// It is of another state version, taken by another release after event `version`.
    OfOtherStateVersion {
        state_version: u32,
        version: u64,
    },
    Unreadable(Cause),
}

impl EventStream<'_> {
    /// The state that a fold of all events starts from: the latest snapshot, if it is usable, or else the latest kept
    /// snapshot that is usable. While two releases run in parallel, each one finds its own.
    pub(crate) async fn base(&self) -> Result<Folded, StoreError> {
        let before_first = self.model.before_first_event();
        let latest = self.store.row("read a snapshot", self.key, keys::SNAPSHOT.to_owned()).await?;
        let Some(row) = latest else { return Ok(before_first) };
        match self.usable(row).await? {
            Some(folded) => Ok(folded),
            None => Ok(self.usable_kept_snapshot().await?.unwrap_or(before_first)),
        }
    }

    /// The state that a fold up to event `version` starts from: that of the snapshot, unless it is beyond the event.
    pub(crate) async fn base_at(&self, version: u64) -> Result<Folded, StoreError> {
        if !self.model.full_history() && version > 0 {
            let base = self.base().await?;
            // No event after a snapshot of that version is read, so nothing else would show that its event does not exist.
            if base.version() < version || (base.version() == version && !self.is_ahead(version).await?) {
                return Ok(base);
            }
        }
        Ok(self.model.before_first_event())
    }

    /// The latest usable kept snapshot. Usually another release took the others.
    async fn usable_kept_snapshot(&self) -> Result<Option<Folded>, StoreError> {
        let own = AttributeValue::N(self.model.state_version().to_string());
        let kept = self.kept_snapshots().filter_expression(format!("{} = :own", attributes::STATE_VERSION));
        let mut kept = kept.expression_attribute_values(":own", own).into_paginator().items().send();
        while let Some(row) = kept.next().await {
            let row = row.map_err(|error| StoreError::of_call("read a kept snapshot", error))?;
            if let Some(folded) = self.usable(row).await? {
                return Ok(Some(folded));
            }
        }
        Ok(None)
    }

    /// The kept snapshots, the latest first.
    pub(super) fn kept_snapshots(&self) -> QueryFluentBuilder {
        let (first, last) = (keys::kept_snapshot_sk(0), keys::kept_snapshot_sk(keys::MAX_SEQ_NUM));
        self.store.rows_between(self.key, first, last).scan_index_forward(false)
    }

    /// The state that a snapshot holds, unless it is of another state version or cannot be read.
    async fn usable(&self, row: Item) -> Result<Option<Folded>, StoreError> {
        let aggregate = self.key;
        Ok(match self.decode_snapshot(row).await? {
            StoredSnapshot::Usable(folded) => Some(folded),
            StoredSnapshot::OfOtherStateVersion { state_version, version } => {
                tracing::warn!(%aggregate, version, state_version, "ignoring a snapshot of another state version");
                None
            }
            StoredSnapshot::Unreadable(error) => {
                tracing::warn!(%aggregate, error, "ignoring a snapshot that cannot be read");
                None
            }
        })
    }

    /// The `#SNAPSHOT` item of a state.
    pub(super) async fn encode_snapshot(&self, loaded: &Loaded, now: Timestamp) -> Result<SnapshotItem, StoreError> {
        let pk = keys::pk(self.key);
        let mut state = Json::clone(&loaded.state);
        self.store.sealing.seal(&mut state, &pk).await?;
        Ok(SnapshotItem {
            pk,
            sk: keys::SNAPSHOT.to_owned(),
            state: pack(state.text()).map_err(|error| self.corrupt_state(error))?,
            last_seq_num: loaded.version(),
            message_seq: loaded.folded.message_seq(),
            state_version: self.model.state_version(),
            taken_at: timestamp(now),
            ttl: None,
        })
    }

    pub(super) fn snapshot_row(&self, snapshot: &SnapshotItem) -> Result<Item, StoreError> {
        serde_dynamo::to_item(snapshot).map(checksum::seal).map_err(|error| self.corrupt_state(error))
    }

    /// Fails only if the keys of personal values cannot be read: such a snapshot is not wrong.
    pub(super) async fn decode_snapshot(&self, mut row: Item) -> Result<StoredSnapshot, StoreError> {
        match self.store.open_row(self.key, &mut row).await {
            Err(StoreError::Corrupt { source, .. }) => Ok(StoredSnapshot::Unreadable(source)),
            opened => opened.map(|()| self.try_decode(row).unwrap_or_else(StoredSnapshot::Unreadable)),
        }
    }

    fn try_decode(&self, row: Item) -> Result<StoredSnapshot, Cause> {
        let SnapshotItem { sk, state, last_seq_num: version, message_seq, state_version, .. } =
            serde_dynamo::from_item(row)?;
        if sk != keys::SNAPSHOT && sk != keys::kept_snapshot_sk(version) {
            return Err(format!("{sk} is not the sort key of a snapshot of event {version}").into());
        }
        if state_version != self.model.state_version() {
            return Ok(StoredSnapshot::OfOtherStateVersion { state_version, version });
        }
        let state = Json::parse(unpack(state)?)?;
        Ok(StoredSnapshot::Usable(self.model.restore(version, message_seq, &state)?))
    }
}
