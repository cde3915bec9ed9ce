//! How many kept snapshots stay.

use aws_sdk_dynamodb::types::AttributeValue;
use daybook_decider::Model;
use daybook_table::{AggregateKey, attributes, keys};
use jiff::Timestamp;

use super::put::{aside_until, is_over, ttl};
use crate::error::StoreError;
use crate::store::EventStore;

impl EventStore {
    /// Gives the kept snapshots beyond the newest few a TTL of now: DynamoDB deletes them at no cost. Those of another state
    /// version do not count, and stay for as long as one that is set aside. `taken` is the sort key of the one that was
    /// taken last.
    ///
    /// They go oldest first, so that behind one whose time is over no other stays: the newest few and the next are all
    /// that is read, however many wait for DynamoDB to delete them, and however many there were when
    /// `SNAPSHOT_KEEP` was lowered.
    pub(super) async fn retire_snapshots(
        &self,
        model: &dyn Model,
        key: &AggregateKey,
        taken: &str,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        // The newest is the copy of `#SNAPSHOT` itself, so one more than asked for stays; none at all if none is asked for.
        let stay = match self.settings.snapshot_keep {
            0 => 0,
            keep => keep + 1,
        };
        let mut kept = self
            .kept_up_to(key, keys::MAX_SEQ_NUM)
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
        let own = AttributeValue::N(model.state_version().to_string());
        while let Some(item) = kept.next().await {
            let item = item.map_err(|fault| StoreError::of_call("list kept snapshots", fault))?;
            let Some(sk) = item.get(attributes::SK).and_then(|sk| sk.as_s().ok()) else { continue };
            passed_by &= sk != taken;
            if is_over(&item, now) {
                break;
            }
            match ttl(&item) {
                // Set aside for another release, for as long as it says.
                Some(_) => {}
                None if item.get(attributes::STATE_VERSION) != Some(&own) => going.push((sk.clone(), aside_until(now))),
                None if staying < stay => staying += 1,
                None => going.push((sk.clone(), now.as_second())),
            }
        }
        // One that was taken late, and is older than what has gone already.
        if passed_by && stay > 0 {
            going.push((taken.to_owned(), now.as_second()));
        }
        for (sk, until) in going.into_iter().rev() {
            self.retire(key, sk, until).await?;
        }
        Ok(())
    }

    async fn retire(&self, key: &AggregateKey, sk: String, until: i64) -> Result<(), StoreError> {
        let update = self
            .client
            .update_item()
            .table_name(&self.settings.table_name)
            .key(attributes::PK, AttributeValue::S(key.pk()))
            .key(attributes::SK, AttributeValue::S(sk))
            .update_expression("SET #ttl = :until")
            // Not one that DynamoDB has deleted meanwhile: the update would make a row of nothing but a TTL.
            .condition_expression(format!("attribute_exists({}) AND attribute_not_exists(#ttl)", attributes::PK))
            .expression_attribute_names("#ttl", attributes::TTL)
            .expression_attribute_values(":until", AttributeValue::N(until.to_string()))
            .send()
            .await;
        match update {
            Ok(_) => Ok(()),
            Err(fault)
                if fault.as_service_error().is_some_and(|error| error.is_conditional_check_failed_exception()) =>
            {
                Ok(())
            }
            Err(fault) => Err(StoreError::of_call("retire a kept snapshot", fault)),
        }
    }
}
