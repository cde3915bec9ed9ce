//! Where a snapshot may be put: where none is, over an older one of its own state version, and, after a look at it, over
//! one that is of no use to this release.

use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::put_item::builders::PutItemFluentBuilder;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValuesOnConditionCheckFailure};
use daybook_decider::Model;
use daybook_table::{AggregateKey, SnapshotItem, attributes, keys};
use jiff::{SignedDuration, Timestamp};

use super::{Stored, decode, to_item};
use crate::error::StoreError;
use crate::load::Item;
use crate::store::EventStore;

/// How long a snapshot of another state version is set aside for the release that took it: longer than a gradual
/// deployment takes, or the decision to roll it back.
const SET_ASIDE: SignedDuration = SignedDuration::from_hours(7 * 24);

/// The TTL of a snapshot that is set aside now.
pub(super) fn aside_until(now: Timestamp) -> i64 {
    (now + SET_ASIDE).as_second()
}

/// The TTL of a row that has one.
pub(super) fn ttl(row: &Item) -> Option<i64> {
    row.get(attributes::TTL).and_then(|ttl| ttl.as_n().ok()?.parse().ok())
}

/// Whether the time of a row is past: DynamoDB deletes late, so it may be there still.
pub(super) fn is_over(row: &Item, now: Timestamp) -> bool {
    ttl(row).is_some_and(|ttl| ttl <= now.as_second())
}

/// More often a snapshot is not looked at anew because another run has replaced it meanwhile: that run's is as good.
const LOOKS: usize = 3;

/// Over which snapshots of its own state version one may be put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Over older ones.
    Newer,
    /// Over older ones and ones of the same event.
    AsNew,
}

impl EventStore {
    /// Puts a snapshot, unless there is one as new. `false` when there is.
    pub(super) async fn put_snapshot(
        &self,
        model: &dyn Model,
        key: &AggregateKey,
        snapshot: &SnapshotItem,
        place: Place,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let older = if place == Place::Newer { "<" } else { "<=" };
        let [pk, last, state] = [attributes::PK, attributes::LAST_SEQ_NUM, attributes::STATE_VERSION];
        let put = self
            .put(to_item(snapshot, key)?)
            .condition_expression(format!(
                "attribute_not_exists({pk}) OR ({state} = :stateVersion AND {last} {older} :version)"
            ))
            .expression_attribute_values(":version", AttributeValue::N(snapshot.last_seq_num.to_string()))
            .expression_attribute_values(":stateVersion", AttributeValue::N(snapshot.state_version.to_string()));
        let Some(mut there) = outcome(put).await? else { return Ok(true) };
        for _ in 0..LOOKS {
            if !self.may_replace(model, key, &there, snapshot, now).await? {
                return Ok(false);
            }
            match outcome(self.put_over(to_item(snapshot, key)?, &there)).await? {
                None => return Ok(true),
                Some(other) => there = other,
            }
        }
        Ok(false)
    }

    /// Whether a snapshot that stands in the way is of no use. One that only another release can use is set aside.
    async fn may_replace(
        &self,
        model: &dyn Model,
        key: &AggregateKey,
        there: &Item,
        snapshot: &SnapshotItem,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let version = snapshot.last_seq_num;
        match decode(model, there.clone()) {
            Stored::Good(folded) if folded.version() > version => self.is_ahead(key, folded.version()).await,
            Stored::Good(_) => Ok(false),
            Stored::OfAnotherVersion { version: other, .. } if other > version => self.is_ahead(key, other).await,
            // Among the kept ones each release has its own, for as long as they last.
            Stored::OfAnotherVersion { .. } if snapshot.sk != keys::SNAPSHOT => Ok(is_over(there, now)),
            Stored::OfAnotherVersion { version: other, .. } => {
                self.set_aside(there.clone(), other, snapshot.state_version, now).await?;
                Ok(true)
            }
            Stored::Unreadable(fault) => {
                tracing::warn!(aggregate = %key, fault, "replacing a snapshot that cannot be read");
                Ok(true)
            }
        }
    }

    /// Whether a snapshot is of an event that is not there, so that waiting for a newer one would be for ever.
    pub(super) async fn is_ahead(&self, key: &AggregateKey, version: u64) -> Result<bool, StoreError> {
        let ahead = self.events(key, version - 1, 1).await?.items.is_empty();
        if ahead {
            tracing::warn!(aggregate = %key, version, "a snapshot is of an event that is not there");
        }
        Ok(ahead)
    }

    /// Keeps a snapshot of another state version for some days. Not over a kept one of that or a third release, but over
    /// one of this release, which is about to have a newer one.
    async fn set_aside(
        &self,
        mut snapshot: Item,
        version: u64,
        own_state_version: u32,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        snapshot.insert(attributes::SK.to_owned(), AttributeValue::S(keys::kept_snapshot_sk(version)));
        snapshot.insert(attributes::TTL.to_owned(), AttributeValue::N(aside_until(now).to_string()));
        let put = self
            .put(snapshot)
            .condition_expression(format!(
                "attribute_not_exists({}) OR {} = :own",
                attributes::PK,
                attributes::STATE_VERSION
            ))
            .expression_attribute_values(":own", AttributeValue::N(own_state_version.to_string()));
        outcome(put).await.map(drop)
    }

    fn put(&self, item: Item) -> PutItemFluentBuilder {
        self.client
            .put_item()
            .table_name(&self.settings.table_name)
            .set_item(Some(item))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
    }

    /// Puts a snapshot over the one that was looked at, and no other.
    pub(super) fn put_over(&self, item: Item, there: &Item) -> PutItemFluentBuilder {
        let (unchanged, values) = unchanged(there);
        // Whoever has deleted it meanwhile has not made it newer.
        self.put(item)
            .condition_expression(format!("attribute_not_exists({}) OR ({unchanged})", attributes::PK))
            .set_expression_attribute_values((!values.is_empty()).then_some(values))
    }
}

/// The condition that a snapshot is the one that was looked at, and its values.
pub(super) fn unchanged(there: &Item) -> (String, Item) {
    let names = [attributes::LAST_SEQ_NUM, attributes::STATE_VERSION, attributes::TAKEN_AT];
    let condition = names.map(|name| match there.get(name) {
        None => format!("attribute_not_exists({name})"),
        Some(_) => format!("{name} = :{name}"),
    });
    let values = names.into_iter().filter_map(|name| Some((format!(":{name}"), there.get(name)?.clone())));
    (condition.join(" AND "), values.collect())
}

/// Nothing when the item was put, what is there when the condition failed.
pub(super) async fn outcome(put: PutItemFluentBuilder) -> Result<Option<Item>, StoreError> {
    match put.send().await {
        Ok(_) => Ok(None),
        Err(fault) => match fault.as_service_error() {
            Some(PutItemError::ConditionalCheckFailedException(failed)) => {
                Ok(Some(failed.item().cloned().unwrap_or_default()))
            }
            _ => Err(StoreError::of_call("write a snapshot", fault)),
        },
    }
}
