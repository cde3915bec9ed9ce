//! Snapshots of an aggregate's current state.

use daybook_decider::Model;
use daybook_table::{AggregateKey, SnapshotItem, keys};
use jiff::Timestamp;

use super::put::Replaces;
use crate::error::StoreError;
use crate::event_stream::EventStream;
use crate::limits;
use crate::load::LoadOptions;
use crate::loaded::Loaded;
use crate::store::EventStore;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotOutcome {
    Taken {
        /// The last event that is folded into it.
        version: u64,
    },
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
        if model.full_history() {
            return Ok(SnapshotOutcome::NotNeeded);
        }
        let stream = self.stream(model, key);
        stream.store_snapshot(&stream.load(LoadOptions::default()).await?, Replaces::Older, now).await
    }
}

impl EventStream<'_> {
    pub(crate) async fn store_snapshot(
        &self,
        loaded: &Loaded,
        replaces: Replaces,
        now: Timestamp,
    ) -> Result<SnapshotOutcome, StoreError> {
        let version = loaded.version();
        if version == 0 {
            return Ok(SnapshotOutcome::NotNeeded);
        }
        let latest = self.encode_snapshot(loaded, now).await?;
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
}
