//! Where a snapshot is put: where there is none, over an older one of its own state version, and, after it was read, over
//! one that is of no use to this release.

use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::put_item::builders::PutItemFluentBuilder;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValuesOnConditionCheckFailure};
use daybook_table::{SnapshotItem, attributes, keys};
use jiff::Timestamp;

use super::codec::StoredSnapshot;
use super::retention::{is_expired, set_aside_until};
use crate::error::StoreError;
use crate::event_stream::EventStream;
use crate::item::Item;

/// How often an existing snapshot is replaced that another run puts there meanwhile. After that, that run's is as good.
const ATTEMPTS: usize = 3;

/// Which snapshots of its own state version one replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replaces {
    /// Older ones.
    Older,
    /// Older ones and ones of the same event.
    OlderOrSame,
}

impl EventStream<'_> {
    /// Puts a snapshot, unless there is one as new. `false` when there is.
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
            if !self.may_replace(&existing, snapshot, now).await? {
                return Ok(false);
            }
            match put_or_existing(self.put_over(self.snapshot_row(snapshot)?, &existing)).await? {
                None => return Ok(true),
                Some(other) => existing = other,
            }
        }
        Ok(false)
    }

    /// Whether an existing snapshot is of no use. One that only another release can use is set aside.
    async fn may_replace(&self, existing: &Item, snapshot: &SnapshotItem, now: Timestamp) -> Result<bool, StoreError> {
        let version = snapshot.last_seq_num;
        match self.decode_snapshot(existing.clone()) {
            StoredSnapshot::Usable(folded) if folded.version() > version => self.is_ahead(folded.version()).await,
            StoredSnapshot::Usable(_) => Ok(false),
            StoredSnapshot::OfOtherStateVersion { version: other, .. } if other > version => self.is_ahead(other).await,
            // Among the kept ones each release has its own, for as long as they last.
            StoredSnapshot::OfOtherStateVersion { .. } if snapshot.sk != keys::SNAPSHOT => {
                Ok(is_expired(existing, now))
            }
            StoredSnapshot::OfOtherStateVersion { version: other, .. } => {
                self.set_aside(existing.clone(), other, now).await?;
                Ok(true)
            }
            StoredSnapshot::Unreadable(error) => {
                tracing::warn!(aggregate = %self.key, error, "replacing a snapshot that cannot be read");
                Ok(true)
            }
        }
    }

    /// Whether a snapshot is of an event that is not there, so that waiting for a newer one would be for ever.
    pub(super) async fn is_ahead(&self, version: u64) -> Result<bool, StoreError> {
        let is_ahead = self.store.events(self.key, version - 1, 1).await?.items.is_empty();
        if is_ahead {
            tracing::warn!(aggregate = %self.key, version, "a snapshot is of an event that is not there");
        }
        Ok(is_ahead)
    }

    /// Keeps a snapshot of another state version for some days. Not over a kept one of that or a third release, but over
    /// one of this release, which is about to have a newer one.
    async fn set_aside(&self, mut snapshot: Item, version: u64, now: Timestamp) -> Result<(), StoreError> {
        snapshot.insert(attributes::SK.to_owned(), AttributeValue::S(keys::kept_snapshot_sk(version)));
        snapshot.insert(attributes::TTL.to_owned(), AttributeValue::N(set_aside_until(now).to_string()));
        let own = AttributeValue::N(self.model.state_version().to_string());
        let put = self
            .put(snapshot)
            .condition_expression(format!(
                "attribute_not_exists({}) OR {} = :own",
                attributes::PK,
                attributes::STATE_VERSION
            ))
            .expression_attribute_values(":own", own);
        put_or_existing(put).await.map(drop)
    }

    fn put(&self, item: Item) -> PutItemFluentBuilder {
        let put = self.store.client.put_item().table_name(&self.store.settings.table_name).set_item(Some(item));
        put.return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
    }

    /// Puts a snapshot over the existing one that was read, and no other.
    pub(crate) fn put_over(&self, item: Item, existing: &Item) -> PutItemFluentBuilder {
        let (unchanged, values) = unchanged(existing);
        // Whoever has deleted it meanwhile has not made it newer.
        self.put(item)
            .condition_expression(format!("attribute_not_exists({}) OR ({unchanged})", attributes::PK))
            .set_expression_attribute_values((!values.is_empty()).then_some(values))
    }
}

/// The condition that a snapshot is the one that was read, and its values.
pub(crate) fn unchanged(existing: &Item) -> (String, Item) {
    let names = [attributes::LAST_SEQ_NUM, attributes::STATE_VERSION, attributes::TAKEN_AT];
    let condition = names.map(|name| match existing.get(name) {
        None => format!("attribute_not_exists({name})"),
        Some(_) => format!("{name} = :{name}"),
    });
    let values = names.into_iter().filter_map(|name| Some((format!(":{name}"), existing.get(name)?.clone())));
    (condition.join(" AND "), values.collect())
}

/// Nothing when the item was put, the existing one when the condition failed.
pub(crate) async fn put_or_existing(put: PutItemFluentBuilder) -> Result<Option<Item>, StoreError> {
    let Err(error) = put.send().await else { return Ok(None) };
    match error.as_service_error() {
        Some(PutItemError::ConditionalCheckFailedException(failed)) => {
            Ok(Some(failed.item().cloned().unwrap_or_default()))
        }
        _ => Err(StoreError::of_call("write a snapshot", error)),
    }
}
