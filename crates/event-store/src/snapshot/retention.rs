//! Retention of kept snapshots: how many are kept, and for how long.

use aws_sdk_dynamodb::types::AttributeValue;
use daybook_table::{attributes, keys};
use jiff::{SignedDuration, Timestamp};

use crate::error::{StoreError, if_condition_holds};
use crate::event_stream::EventStream;
use crate::item::{Item, number, row_key};

/// The time for which a snapshot of another state version is kept for the release that took it: longer than a gradual
/// deployment takes, or the decision to roll it back.
const ROLLBACK_TIME: SignedDuration = SignedDuration::from_hours(7 * 24);

impl EventStream<'_> {
    /// Sets a TTL of now on the kept snapshots beyond the latest few: DynamoDB deletes them at no cost. Kept snapshots
    /// of another state version do not count towards these, and expire after [`ROLLBACK_TIME`]. `taken` is the sort
    /// key of the snapshot that was taken last.
    ///
    /// The oldest get their TTL first, so that every snapshot before an expired one has expired too. Reading therefore
    /// ends at the first expired one, however many wait to be deleted by DynamoDB: usually after the latest few and the
    /// next one. Only the first call after `SNAPSHOT_KEEP` was lowered also reads all that it retires.
    pub(super) async fn retire_snapshots(&self, taken: &str, now: Timestamp) -> Result<(), StoreError> {
        // The latest kept snapshot is the copy of `#SNAPSHOT` itself, so one more than `SNAPSHOT_KEEP` is kept; none
        // if that is 0.
        let limit = match self.store.settings.snapshot_keep {
            0 => 0,
            keep => keep + 1,
        };
        let mut kept = self
            .kept_snapshots(keys::MAX_SEQ_NUM)
            .projection_expression(format!("{}, {}, #ttl", attributes::SK, attributes::STATE_VERSION))
            .expression_attribute_names("#ttl", attributes::TTL)
            .into_paginator()
            // Those that are kept, the one that is retired, and one that has expired.
            .page_size(i32::try_from(limit + 2).unwrap_or(i32::MAX))
            .items()
            .send();
        let mut counted = 0;
        let mut to_retire = Vec::new();
        let mut taken_is_missing = true;
        let own = AttributeValue::N(self.model.state_version().to_string());
        while let Some(row) = kept.next().await {
            let row = row.map_err(|error| StoreError::of_call("list kept snapshots", error))?;
            let Some(sk) = row.get(attributes::SK).and_then(|sk| sk.as_s().ok()) else { continue };
            taken_is_missing &= sk != taken;
            if is_expired(&row, now) {
                break;
            }
            match ttl(&row) {
                // It already expires at that time.
                Some(_) => {}
                None if row.get(attributes::STATE_VERSION) != Some(&own) => {
                    to_retire.push((sk.clone(), rollback_expiry(now)));
                }
                None if counted < limit => counted += 1,
                None => to_retire.push((sk.clone(), now.as_second())),
            }
        }
        // A snapshot that was taken late may be older than those that have expired already.
        if taken_is_missing && limit > 0 {
            to_retire.push((taken.to_owned(), now.as_second()));
        }
        for (sk, until) in to_retire.into_iter().rev() {
            self.retire(sk, until).await?;
        }
        Ok(())
    }

    async fn retire(&self, sk: String, until: i64) -> Result<(), StoreError> {
        let update = self.store.client.update_item();
        let result = update
            .table_name(&self.store.settings.table_name)
            .set_key(Some(row_key(keys::pk(self.key), sk)))
            .update_expression("SET #ttl = :until")
            // DynamoDB may have deleted it in the meantime: the update would then create a row with nothing but a TTL.
            .condition_expression(format!("attribute_exists({}) AND attribute_not_exists(#ttl)", attributes::PK))
            .expression_attribute_names("#ttl", attributes::TTL)
            .expression_attribute_values(":until", AttributeValue::N(until.to_string()))
            .send()
            .await;
        if_condition_holds("retire a kept snapshot", result).map(drop)
    }
}

/// The TTL of a snapshot of another state version that is kept from now on.
pub(super) fn rollback_expiry(now: Timestamp) -> i64 {
    (now + ROLLBACK_TIME).as_second()
}

fn ttl(row: &Item) -> Option<i64> {
    number(row, attributes::TTL)
}

/// Whether a row has expired: DynamoDB deletes late, so expired rows may still exist.
pub(super) fn is_expired(row: &Item, now: Timestamp) -> bool {
    ttl(row).is_some_and(|ttl| ttl <= now.as_second())
}
