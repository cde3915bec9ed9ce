//! The aggregates that are suspended in a view, because their next event cannot be folded.

use aws_sdk_dynamodb::types::{AttributeValue, ReturnValue};
use daybook_event_store::StoreError;
use daybook_event_store::internal::{if_condition_holds, row_key};
use daybook_table::AggregateKey;
use jiff::Timestamp;

use crate::items::{POSITION, PositionItem, View, read};
use crate::store::ViewStore;
use crate::write::RESUMED_AT;

/// The attribute of a position that contains the reason.
const SUSPENDED: &str = "suspended";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuspendedAggregate {
    pub view: View,
    pub aggregate: AggregateKey,
    pub seq_num: u64,
    pub reason: String,
}

impl ViewStore {
    /// All suspended aggregates, in any order. Reads the whole table.
    pub async fn suspended(&self) -> Result<Vec<SuspendedAggregate>, StoreError> {
        let scan = self.client.scan().table_name(&self.table_name).consistent_read(true);
        let scan = scan.filter_expression(format!("attribute_exists({SUSPENDED})"));
        let mut items = scan.into_paginator().items().send();
        let mut found = Vec::new();
        while let Some(item) = items.next().await {
            let item = item.map_err(|error| StoreError::of_call("list suspended aggregates", error))?;
            let PositionItem { pk, seq_num, suspended, .. } = read(item)?;
            if let (Some((view, aggregate)), Some(reason)) = (View::of_position(&pk), suspended) {
                found.push(SuspendedAggregate { view, aggregate, seq_num, reason });
            }
        }
        Ok(found)
    }

    /// Ends the suspension of an aggregate. Returns the number of the event that could not be folded, or `None` if the
    /// aggregate was not suspended. Its events are folded when it is projected again. A write of a projector that read the
    /// position before fails, so that it cannot suspend the aggregate again.
    pub async fn resume(
        &self,
        view: &View,
        aggregate: &AggregateKey,
        now: Timestamp,
    ) -> Result<Option<u64>, StoreError> {
        let update = self.client.update_item().table_name(&self.table_name);
        let update = update.set_key(Some(row_key(view.position_pk(aggregate), POSITION.to_owned())));
        let update = update.update_expression(format!("SET {RESUMED_AT} = :now REMOVE {SUSPENDED}"));
        let update = update.expression_attribute_values(":now", AttributeValue::S(now.to_string()));
        let update = update.condition_expression(format!("attribute_exists({SUSPENDED})"));
        let resumed = update.return_values(ReturnValue::AllNew).send().await;
        let Some(output) = if_condition_holds("resume an aggregate", resumed)? else { return Ok(None) };
        let position: PositionItem = read(output.attributes.unwrap_or_default())?;
        Ok(Some(position.seq_num + 1))
    }
}
