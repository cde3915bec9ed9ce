//! The cure for kept snapshots that are wrong.

use std::sync::Arc;

use aws_sdk_dynamodb::types::AttributeValue;
use daybook_decider::Model;
use daybook_table::{AggregateKey, SnapshotItem, attributes, keys};
use jiff::Timestamp;

use super::put::{outcome, unchanged};
use super::{Stored, corrupt_state, decode, encode, to_item};
use crate::error::StoreError;
use crate::limits;
use crate::load::{Item, Loaded, text};
use crate::store::EventStore;

impl EventStore {
    /// The kept snapshots, the oldest first.
    pub(super) async fn kept(&self, key: &AggregateKey) -> Result<Vec<Item>, StoreError> {
        let rows = self.kept_up_to(key, keys::MAX_SEQ_NUM).scan_index_forward(true).into_paginator().items().send();
        rows.collect::<Result<_, _>>().await.map_err(|fault| StoreError::of_call("read the kept snapshots", fault))
    }

    /// Puts right each of the kept snapshots that is not the state after its event. One that cannot be put right, because
    /// there is no such event or nobody can read it, is deleted. Those of another state version are left alone. `last` is
    /// the aggregate, folded from its first event after they were read.
    ///
    /// It reads the events up to the last that is needed once more.
    pub(super) async fn mend_kept(
        &self,
        model: &dyn Model,
        key: &AggregateKey,
        kept: Vec<Item>,
        last: &Loaded,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let mut folded = model.before_first_event();
        for row in kept {
            let snapshot = match decode(model, row.clone()) {
                Stored::OfAnotherVersion { .. } => continue,
                Stored::Good(snapshot) if (1..=last.version()).contains(&snapshot.version()) => snapshot,
                Stored::Good(_) | Stored::Unreadable(_) => {
                    self.delete_kept(key, &row).await?;
                    continue;
                }
            };
            folded = if snapshot.version() == last.version() {
                last.folded.clone()
            } else {
                self.fold_on(model, key, folded, last.version(), snapshot.version()).await?
            };
            let state = model.state(&folded).map_err(|fault| corrupt_state(key, fault))?;
            let is_right = snapshot.message_seq() == folded.message_seq()
                && model.state(&snapshot).is_ok_and(|says| says == state);
            if !is_right {
                let right = Loaded { folded: folded.clone(), state: Arc::new(state) };
                self.correct(model, key, &row, &right, now).await?;
            }
        }
        Ok(())
    }

    /// Puts the right state into a kept snapshot, which goes when it would have gone.
    async fn correct(
        &self,
        model: &dyn Model,
        key: &AggregateKey,
        row: &Item,
        right: &Loaded,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let sk = keys::kept_snapshot_sk(right.version());
        let mut item = to_item(&SnapshotItem { sk, ..encode(model, key, right, now)? }, key)?;
        item.extend(row.get(attributes::TTL).map(|ttl| (attributes::TTL.to_owned(), ttl.clone())));
        if limits::item_size(&item) > limits::MAX_ITEM {
            return self.delete_kept(key, row).await;
        }
        // If another is there by now, it is one that was taken meanwhile.
        outcome(self.put_over(item, row)).await.map(drop)
    }

    async fn delete_kept(&self, key: &AggregateKey, row: &Item) -> Result<(), StoreError> {
        let (unchanged, values) = unchanged(row);
        let deletion = self
            .client
            .delete_item()
            .table_name(&self.settings.table_name)
            .key(attributes::PK, AttributeValue::S(key.pk()))
            .key(attributes::SK, AttributeValue::S(text(row, attributes::SK).to_owned()))
            .condition_expression(unchanged)
            .set_expression_attribute_values((!values.is_empty()).then_some(values))
            .send()
            .await;
        match deletion {
            Err(fault)
                if !fault.as_service_error().is_some_and(|error| error.is_conditional_check_failed_exception()) =>
            {
                Err(StoreError::of_call("delete a kept snapshot", fault))
            }
            // Or somebody else has put another there.
            _ => Ok(()),
        }
    }
}
