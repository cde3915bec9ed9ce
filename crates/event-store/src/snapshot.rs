//! Snapshots: folded states that save reading the events before them. A snapshot of another state version, or one that
//! cannot be read, is ignored.
//!
//! Invariants:
//! - `#SNAPSHOT` never becomes older, whoever writes it: late, repeated and concurrent runs change nothing.
//! - A snapshot of another state version is copied to the kept snapshots before it is replaced, because another
//!   release may still need it, for as long as a release may be rolled back.
//!
//! A snapshot is put where there is none, over an older one of its own state version, and, after a check of the existing one, over
//! one that this release cannot use. `stored`: which snapshot a fold starts from, and the form of a stored one.

mod stored;

use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::put_item::builders::PutItemFluentBuilder;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValuesOnConditionCheckFailure};
use daybook_decider::Model;
use daybook_table::{AggregateKey, SnapshotItem, attributes, keys};
use jiff::{SignedDuration, Timestamp};

use self::stored::StoredSnapshot;
use crate::error::{StoreError, if_condition_holds};
use crate::item::{Item, row_key, text};
use crate::load::LoadOptions;
use crate::store::{EventStore, EventStream};
use crate::{checksum, limits};

/// Maximum attempts to replace an existing snapshot while other runs replace it too. After that, the snapshot of the
/// other run is as good.
const ATTEMPTS: usize = 3;

/// The time for which a snapshot of another state version is kept for the release that took it: longer than a gradual
/// deployment takes, or the decision to roll it back.
const ROLLBACK_TIME: SignedDuration = SignedDuration::from_hours(7 * 24);

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

/// The snapshots of its own state version that a snapshot replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Replaces {
    Older,
    OlderOrSame,
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

    /// Puts a snapshot, unless one that is at least as new exists; then it returns `false`.
    async fn put_snapshot(
        &self,
        snapshot: &SnapshotItem,
        replaces: Replaces,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let older = if replaces == Replaces::Older { "<" } else { "<=" };
        let [pk, last, state] = [attributes::PK, attributes::LAST_SEQ_NUM, attributes::STATE_VERSION];
        let put = self
            .put(self.snapshot_row(snapshot)?)
            .condition_expression(format!(
                "attribute_not_exists({pk}) OR ({state} = :stateVersion AND {last} {older} :version)"
            ))
            .expression_attribute_values(":version", AttributeValue::N(snapshot.last_seq_num.to_string()))
            .expression_attribute_values(":stateVersion", AttributeValue::N(snapshot.state_version.to_string()));
        let Some(mut existing) = put_or_existing(put).await? else { return Ok(true) };
        for _ in 0..ATTEMPTS {
            if !self.may_replace(&existing, snapshot.last_seq_num, now).await? {
                return Ok(false);
            }
            match put_or_existing(self.put_over(self.snapshot_row(snapshot)?, &existing)).await? {
                None => return Ok(true),
                Some(other) => existing = other,
            }
        }
        Ok(false)
    }

    /// Whether an existing snapshot may be replaced, because this release cannot use it. One that another release can
    /// use is copied to the kept snapshots first.
    async fn may_replace(&self, existing: &Item, version: u64, now: Timestamp) -> Result<bool, StoreError> {
        match self.decode_snapshot(existing.clone()).await? {
            StoredSnapshot::Usable(folded) if folded.version() > version => self.is_ahead(folded.version()).await,
            StoredSnapshot::Usable(_) => Ok(false),
            StoredSnapshot::OfOtherStateVersion { version: other, .. } if other > version => self.is_ahead(other).await,
            StoredSnapshot::OfOtherStateVersion { version: other, .. } => {
                self.copy_to_kept(existing.clone(), other, now).await?;
                Ok(true)
            }
            StoredSnapshot::Unreadable(error) => {
                tracing::warn!(aggregate = %self.key, error, "replacing a snapshot that cannot be read");
                Ok(true)
            }
        }
    }

    /// Whether a snapshot is of an event that does not exist, so that no newer snapshot would ever replace it.
    async fn is_ahead(&self, version: u64) -> Result<bool, StoreError> {
        let event = self.store.row("read the event of a snapshot", self.key, keys::event_sk(version)).await?;
        let is_ahead = event.is_none();
        if is_ahead {
            tracing::warn!(aggregate = %self.key, version, "a snapshot is of an event that does not exist");
        }
        Ok(is_ahead)
    }

    /// Copies a snapshot of another state version to the kept snapshots for some days. It does not replace a kept
    /// snapshot of another release, but it does replace one of this release, which is about to store a newer one. A
    /// damaged one is not copied: its copy would have a checksum that matches.
    async fn copy_to_kept(&self, mut snapshot: Item, version: u64, now: Timestamp) -> Result<(), StoreError> {
        if !checksum::is_valid(&snapshot) {
            return Ok(());
        }
        let until = (now + ROLLBACK_TIME).as_second();
        snapshot.insert(attributes::SK.to_owned(), AttributeValue::S(keys::kept_snapshot_sk(version)));
        snapshot.insert(attributes::TTL.to_owned(), AttributeValue::N(until.to_string()));
        let own = AttributeValue::N(self.model.state_version().to_string());
        let [pk, state] = [attributes::PK, attributes::STATE_VERSION];
        let put = self.put(checksum::seal(snapshot)).expression_attribute_values(":own", own);
        let put = put.condition_expression(format!("attribute_not_exists({pk}) OR {state} = :own"));
        put_or_existing(put).await.map(drop)
    }

    fn put(&self, item: Item) -> PutItemFluentBuilder {
        let put = self.store.client.put_item().table_name(&self.store.settings.table_name).set_item(Some(item));
        put.return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
    }

    /// Puts a snapshot over the existing one that was read, and over no other.
    fn put_over(&self, item: Item, existing: &Item) -> PutItemFluentBuilder {
        let (unchanged, values) = checksum::unchanged(existing.get(attributes::CHECKSUM));
        // A snapshot that was deleted in the meantime has not become newer.
        self.put(item)
            .condition_expression(format!("attribute_not_exists({}) OR {unchanged}", attributes::PK))
            .expression_attribute_names("#sum", attributes::CHECKSUM)
            .set_expression_attribute_values(values)
    }
}

/// `None` when the item was put; the existing item when the condition failed.
async fn put_or_existing(put: PutItemFluentBuilder) -> Result<Option<Item>, StoreError> {
    let Err(error) = put.send().await else { return Ok(None) };
    match error.as_service_error() {
        Some(PutItemError::ConditionalCheckFailedException(failed)) => {
            Ok(Some(failed.item().cloned().unwrap_or_default()))
        }
        _ => Err(StoreError::of_call("write a snapshot", error)),
    }
}
