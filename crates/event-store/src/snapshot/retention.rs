//! How many kept snapshots stay, and for how long.

use aws_sdk_dynamodb::types::AttributeValue;
use daybook_table::{attributes, keys};
use jiff::{SignedDuration, Timestamp};

use crate::error::{StoreError, if_condition_holds};
use crate::event_stream::EventStream;
use crate::item::{Item, number, row_key};

/// How long a snapshot of another state version is set aside for the release that took it: longer than a gradual
/// deployment takes, or the decision to roll it back.
const SET_ASIDE: SignedDuration = SignedDuration::from_hours(7 * 24);

impl EventStream<'_> {
    /// Gives the kept snapshots beyond the newest few a TTL of now: DynamoDB deletes them at no cost. Those of another state
    /// version do not count, and stay for as long as one that is set aside. `taken` is the sort key of the one that was
    /// taken last.
    ///
    /// They go oldest first, so that behind one whose time is over no other stays: the newest few and the next are all
    /// that is read, however many wait for DynamoDB to delete them, and however many there were when
    /// `SNAPSHOT_KEEP` was lowered.
    pub(super) async fn retire_snapshots(&self, taken: &str, now: Timestamp) -> Result<(), StoreError> {
        // The newest is the copy of `#SNAPSHOT` itself, so one more than asked for stays; none at all if none is asked for.
        let stay = match self.store.settings.snapshot_keep {
            0 => 0,
            keep => keep + 1,
        };
        let mut kept = self
            .kept_up_to(keys::MAX_SEQ_NUM)
            .projection_expression(format!("{}, {}, #ttl", attributes::SK, attributes::STATE_VERSION))
            .expression_attribute_names("#ttl", attributes::TTL)
            .into_paginator()
            // Those that stay, the one that falls out, and one whose time is over.
            .page_size(i32::try_from(stay + 2).unwrap_or(i32::MAX))
            .items()
            .send();
        let mut staying = 0;
        let mut going = Vec::new();
        let mut passed_by = true;
        let own = AttributeValue::N(self.model.state_version().to_string());
        while let Some(row) = kept.next().await {
            let row = row.map_err(|error| StoreError::of_call("list kept snapshots", error))?;
            let Some(sk) = row.get(attributes::SK).and_then(|sk| sk.as_s().ok()) else { continue };
            passed_by &= sk != taken;
            if is_expired(&row, now) {
                break;
            }
            match ttl(&row) {
                // Set aside for another release until then.
                Some(_) => {}
                None if row.get(attributes::STATE_VERSION) != Some(&own) => {
                    going.push((sk.clone(), set_aside_until(now)));
                }
                None if staying < stay => staying += 1,
                None => going.push((sk.clone(), now.as_second())),
            }
        }
        // One that was taken late, and is older than what has gone already.
        if passed_by && stay > 0 {
            going.push((taken.to_owned(), now.as_second()));
        }
        for (sk, until) in going.into_iter().rev() {
            self.retire(sk, until).await?;
        }
        Ok(())
    }

    async fn retire(&self, sk: String, until: i64) -> Result<(), StoreError> {
        let update = self.store.client.update_item();
        let result = update
            .table_name(&self.store.settings.table_name)
            .set_key(Some(row_key(self.key.pk(), sk)))
            .update_expression("SET #ttl = :until")
            // Not one that DynamoDB has deleted meanwhile: the update would make a row of nothing but a TTL.
            .condition_expression(format!("attribute_exists({}) AND attribute_not_exists(#ttl)", attributes::PK))
            .expression_attribute_names("#ttl", attributes::TTL)
            .expression_attribute_values(":until", AttributeValue::N(until.to_string()))
            .send()
            .await;
        if_condition_holds("retire a kept snapshot", result).map(drop)
    }
}

/// The TTL of a snapshot that is set aside now.
pub(super) fn set_aside_until(now: Timestamp) -> i64 {
    (now + SET_ASIDE).as_second()
}

/// The TTL of a row that has one.
fn ttl(row: &Item) -> Option<i64> {
    number(row, attributes::TTL)
}

/// Whether the time of a row is past: DynamoDB deletes late, so it may be there still.
pub(super) fn is_expired(row: &Item, now: Timestamp) -> bool {
    ttl(row).is_some_and(|ttl| ttl <= now.as_second())
}
