//! Snapshots: a folded state that saves reading the events before it. Never trusted beyond that: one of another state
//! version, or one that cannot be read, is ignored.
//!
//! Invariants:
//! - `#SNAPSHOT` never becomes older, whoever writes it: late, repeated and crossing runs change nothing.
//! - What one release replaces, another may still need: a snapshot of another state version is set aside among the kept
//!   ones first, for as long as a release may be rolled back.
//!
//! In reading order: taking one; `put`: where one may be put; `kept`: how many stay; `base`: what a fold goes on from;
//! `mend`: the cure for kept ones that are wrong.

mod base;
mod kept;
mod mend;
mod put;

use daybook_decider::record::timestamp;
use daybook_decider::{Folded, Json, Model};
use daybook_table::{AggregateKey, SnapshotItem, keys};
use jiff::Timestamp;

use self::put::Place;
use crate::error::{Cause, StoreError};
use crate::limits;
use crate::load::{Item, LoadOptions, Loaded};
use crate::packing::{pack, unpack};
use crate::store::EventStore;

/// What became of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotOutcome {
    /// It is stored.
    Taken {
        /// The last event that is folded into it.
        version: u64,
    },
    /// One as new is stored already: a late, repeated or reordered request changes nothing.
    NotNewer,
    /// The state does not fit an item even when compressed. The aggregate works on without a snapshot.
    TooLarge {
        /// What the item would have had, in bytes.
        bytes: usize,
    },
    /// The aggregate cannot use one: it has no events, or wants its full history.
    NotNeeded,
}

impl EventStore {
    /// Stores the aggregate's present state as its snapshot, unless one as new is there.
    ///
    /// # Errors
    ///
    /// See [`StoreError`].
    pub async fn take_snapshot(
        &self,
        model: &dyn Model,
        key: &AggregateKey,
        now: Timestamp,
    ) -> Result<SnapshotOutcome, StoreError> {
        if model.full_history() {
            return Ok(SnapshotOutcome::NotNeeded);
        }
        let loaded = self.load(model, key).await?;
        self.store_snapshot(model, key, &loaded, Place::Newer, now).await
    }

    /// The same, folded from the first event whatever snapshots say, and put even over one that is as new: the cure for
    /// a snapshot that is wrong. Kept ones that are wrong are put right too, and deleted where they cannot be.
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
        // Before the events: a snapshot that is beyond them then is of one that is not there.
        let kept = self.kept(key).await?;
        let loaded = self.load_with(model, key, LoadOptions::REBUILD).await?;
        if loaded.version() > 0 {
            self.mend_kept(model, key, kept, &loaded, now).await?;
        }
        self.store_snapshot(model, key, &loaded, Place::AsNew, now).await
    }

    async fn store_snapshot(
        &self,
        model: &dyn Model,
        key: &AggregateKey,
        loaded: &Loaded,
        place: Place,
        now: Timestamp,
    ) -> Result<SnapshotOutcome, StoreError> {
        let version = loaded.version();
        if version == 0 {
            return Ok(SnapshotOutcome::NotNeeded);
        }
        let newest = encode(model, key, loaded, now)?;
        // As large as it ever gets: kept, and with a TTL.
        let sk = keys::kept_snapshot_sk(version);
        let retired = SnapshotItem { sk, ttl: Some(now.as_second()), ..newest.clone() };
        let bytes = limits::item_size(&to_item(&retired, key)?);
        if bytes > limits::MAX_ITEM {
            return Ok(SnapshotOutcome::TooLarge { bytes });
        }
        let kept = SnapshotItem { ttl: None, ..retired };
        // The kept copy first: were it second, a crash between the two would lose it for good.
        if self.settings.snapshot_keep > 0 {
            self.put_snapshot(model, key, &kept, place, now).await?;
        }
        let stored = self.put_snapshot(model, key, &newest, place, now).await?;
        self.retire_snapshots(model, key, &kept.sk, now).await?;
        Ok(if stored { SnapshotOutcome::Taken { version } } else { SnapshotOutcome::NotNewer })
    }
}

fn encode(model: &dyn Model, key: &AggregateKey, loaded: &Loaded, now: Timestamp) -> Result<SnapshotItem, StoreError> {
    let state = pack(loaded.state.text()).map_err(|fault| corrupt_state(key, fault))?;
    Ok(SnapshotItem {
        pk: key.pk(),
        sk: keys::SNAPSHOT.to_owned(),
        state,
        last_seq_num: loaded.version(),
        message_seq: loaded.folded.message_seq(),
        state_version: model.state_version(),
        taken_at: timestamp(now),
        ttl: None,
    })
}

fn to_item(snapshot: &SnapshotItem, key: &AggregateKey) -> Result<Item, StoreError> {
    serde_dynamo::to_item(snapshot).map_err(|fault| corrupt_state(key, fault))
}

fn corrupt_state(key: &AggregateKey, fault: impl Into<Cause>) -> StoreError {
    StoreError::Corrupt { item: format!("the state of {key}"), source: fault.into() }
}

/// What a stored snapshot is to this code.
#[derive(Debug)]
enum Stored {
    /// The state after that event.
    Good(Folded),
    /// Another release's, of that event.
    OfAnotherVersion { state_version: u32, version: u64 },
    /// Nobody's.
    Unreadable(Cause),
}

fn decode(model: &dyn Model, item: Item) -> Stored {
    let read = || -> Result<Stored, Cause> {
        let snapshot: SnapshotItem = serde_dynamo::from_item(item)?;
        let version = snapshot.last_seq_num;
        if snapshot.sk != keys::SNAPSHOT && snapshot.sk != keys::kept_snapshot_sk(version) {
            return Err(format!("{} says that it is of event {version}", snapshot.sk).into());
        }
        if snapshot.state_version != model.state_version() {
            return Ok(Stored::OfAnotherVersion { state_version: snapshot.state_version, version });
        }
        let state = Json::parse(unpack(snapshot.state)?)?;
        Ok(Stored::Good(model.restore(version, snapshot.message_seq, &state)?))
    };
    read().unwrap_or_else(Stored::Unreadable)
}
