//! The rows of claims: items of the transaction by the difference of claims, each on condition of its holder.
//!
//! Invariant: the row of a claim has one holder, and exists exactly while the state of that aggregate has the claim. After a
//! change of `Aggregate::claims`, that holds again when `daybook claims rebuild` has ended.

use std::collections::{BTreeMap, BTreeSet};

use aws_sdk_dynamodb::types::{
    AttributeValue, ConditionCheck, Delete, Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem,
};
use daybook_decider::{Claim, ClaimChanges};
use daybook_table::{AggregateKey, ClaimItem, attributes, keys};

use crate::checksum::seal;
use crate::error::StoreError;
use crate::item::{Item, row_key};
use crate::subject_keys::Sealing;

/// What is known about claims of several aggregates.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClaimHolders {
    /// The claims to release that another aggregate has: those from before a change of `Aggregate::claims`.
    pub(crate) foreign: BTreeSet<Claim>,
    /// The aggregates of the transaction that release each claim. There are several if one of the states is outdated, or from
    /// before a change of `Aggregate::claims`.
    pub(crate) released: BTreeMap<Claim, Vec<AggregateKey>>,
    pub(crate) taken: BTreeSet<Claim>,
}

#[derive(Debug)]
pub(crate) struct ClaimWrite {
    pub(super) claim: Claim,
    /// Whether it takes the claim; otherwise it releases it.
    pub(super) takes: bool,
    /// The row, or its key if it is released.
    pub(super) row: Item,
    pub(super) item: TransactWriteItem,
}

impl ClaimWrite {
    /// The items that take and release claims of an aggregate. A release of a foreign claim is only the check that the aggregate
    /// does not have it. A claim that moves, or that several release, is one item: a transaction may contain an item once.
    pub(super) fn all(
        (table, sealing): (&str, &Sealing),
        key: &AggregateKey,
        changes: &ClaimChanges,
        holders: &ClaimHolders,
    ) -> Result<Vec<Self>, StoreError> {
        if *changes == ClaimChanges::default() {
            return Ok(Vec::new());
        }
        let is_free = format!("attribute_not_exists({})", attributes::PK);
        let (is_own, own) = has_holder(key, "");
        let all_old = ReturnValuesOnConditionCheckFailure::AllOld;
        let released_by = |claim: &Claim| holders.released.get(claim).map_or(&[][..], Vec::as_slice);
        let free_or_of = |claim: &Claim| {
            let (mut condition, mut values) = (format!("{is_free} OR {is_own}"), own.clone());
            for (number, from) in released_by(claim).iter().enumerate() {
                let (is_other, other) = has_holder(from, &number.to_string());
                condition += &format!(" OR {is_other}");
                values.extend(other);
            }
            (condition, values)
        };
        let taken = changes.taken.iter().map(|claim| {
            let row = serde_dynamo::to_item(ClaimItem::new(&sealing.prepared_claim(claim), key)).map(seal);
            let row: Item = row.map_err(|error| StoreError::corrupt(format!("a new claim of {key}"), error))?;
            let put = Put::builder().table_name(table).set_item(Some(row.clone()));
            let (condition, values) = free_or_of(claim);
            let put = put.condition_expression(condition).set_expression_attribute_values(Some(values));
            let put = put.return_values_on_condition_check_failure(all_old.clone());
            let item = TransactWriteItem::builder().put(put.build().expect("table and item are set above")).build();
            Ok(Self { claim: claim.clone(), takes: true, row, item })
        });
        let is_first = |claim: &Claim| released_by(claim).first().is_none_or(|first| first == key);
        let released = changes.released.iter().filter(|claim| !holders.taken.contains(claim) && is_first(claim));
        let released = released.map(|claim| {
            let stored = sealing.prepared_claim(claim);
            let (row, item) = (row_key(keys::claim_pk(&stored), keys::CLAIM.to_owned()), TransactWriteItem::builder());
            let item = if holders.foreign.contains(claim) {
                let check = ConditionCheck::builder().table_name(table).set_key(Some(row.clone()));
                let check = check.condition_expression(format!("{is_free} OR NOT {is_own}"));
                let check = check.set_expression_attribute_values(Some(own.clone()));
                item.condition_check(check.build().expect("table, key and condition are set above"))
            } else {
                let delete = Delete::builder().table_name(table).set_key(Some(row.clone()));
                let (condition, values) = free_or_of(claim);
                let delete = delete.condition_expression(condition).set_expression_attribute_values(Some(values));
                item.delete(delete.build().expect("table and key are set above"))
            };
            Ok(Self { claim: claim.clone(), takes: false, row, item: item.build() })
        });
        taken.chain(released).collect()
    }
}

/// The condition that the row of a claim has this holder, and its values. `suffix` distinguishes them from those of others.
fn has_holder(holder: &AggregateKey, suffix: &str) -> (String, Item) {
    let (of_type, of_id) = (format!(":type{suffix}"), format!(":id{suffix}"));
    let condition = format!("({} = {of_type} AND {} = {of_id})", attributes::AGGREGATE_TYPE, attributes::AGGREGATE_ID);
    let values = [(of_type, &holder.aggregate_type), (of_id, &holder.id)];
    (condition, values.map(|(name, value)| (name, AttributeValue::S(value.clone()))).into())
}

/// The check that a claim, as it is stored, has this holder, or none.
pub(super) fn claim_check(table: &str, stored: &Claim, holder: Option<&AggregateKey>) -> TransactWriteItem {
    let check = ConditionCheck::builder()
        .table_name(table)
        .set_key(Some(row_key(keys::claim_pk(stored), keys::CLAIM.to_owned())));
    let check = match holder.map(|holder| has_holder(holder, "")) {
        None => check.condition_expression(format!("attribute_not_exists({})", attributes::PK)),
        Some((condition, values)) => {
            check.condition_expression(condition).set_expression_attribute_values(Some(values))
        }
    };
    let check = check.build().expect("table, key and condition are set above");
    TransactWriteItem::builder().condition_check(check).build()
}

pub(crate) fn read_claim(claim: &Claim, row: Item) -> Result<ClaimItem, StoreError> {
    serde_dynamo::from_item(row)
        .map_err(|error| StoreError::corrupt(format!("a claim of the name {}", claim.name()), error))
}
