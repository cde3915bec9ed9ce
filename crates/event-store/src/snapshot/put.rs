//! Rules for putting a snapshot: where there is none, over an older one of its own state version, and, after a check of
//! the existing one, over one that this release cannot use.

use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::put_item::builders::PutItemFluentBuilder;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValuesOnConditionCheckFailure};
use daybook_table::{SnapshotItem, attributes, keys};
use jiff::{SignedDuration, Timestamp};

use super::codec::StoredSnapshot;
use crate::checksum;
use crate::error::StoreError;
use crate::event_stream::EventStream;
use crate::item::Item;

/// Maximum attempts to replace an existing snapshot while other runs replace it too. After that, the snapshot of the
/// other run is as good.
const ATTEMPTS: usize = 3;

/// The time for which a snapshot of another state version is kept for the release that took it: longer than a gradual
/// deployment takes, or the decision to roll it back.
const ROLLBACK_TIME: SignedDuration = SignedDuration::from_hours(7 * 24);

/// The snapshots of its own state version that a snapshot replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replaces {
    Older,
    OlderOrSame,
}

impl EventStream<'_> {
    /// Puts a snapshot, unless one that is at least as new exists; then it returns `false`.
    pub(super) async fn put_snapshot(
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
    pub(super) async fn is_ahead(&self, version: u64) -> Result<bool, StoreError> {
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
