//! The stored form of a state in a snapshot.

use daybook_decider::record::timestamp;
use daybook_decider::{Folded, Json};
use daybook_table::{SnapshotItem, keys};
use jiff::Timestamp;

use crate::checksum;
use crate::error::{Cause, StoreError};
use crate::event_stream::EventStream;
use crate::item::Item;
use crate::loaded::Loaded;
use crate::packing::{pack, unpack};

/// A stored snapshot, by its use for this code.
#[derive(Debug)]
pub(crate) enum StoredSnapshot {
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
    /// The `#SNAPSHOT` item of a state.
    pub(crate) async fn encode_snapshot(&self, loaded: &Loaded, now: Timestamp) -> Result<SnapshotItem, StoreError> {
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

    pub(crate) fn snapshot_row(&self, snapshot: &SnapshotItem) -> Result<Item, StoreError> {
        serde_dynamo::to_item(snapshot).map(checksum::seal).map_err(|error| self.corrupt_state(error))
    }

    /// Fails only if the keys of personal values cannot be read: such a snapshot is not wrong.
    pub(crate) async fn decode_snapshot(&self, mut row: Item) -> Result<StoredSnapshot, StoreError> {
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
