//! The transaction that writes rows and positions, and the aggregates that it suspends in a view, because their next event cannot be
//! folded.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{AttributeValue, ConditionCheck, Delete, Put, ReturnValue, TransactWriteItem};
use daybook_decider::{Json, personal};
use daybook_event_store::StoreError;
use daybook_event_store::internal::{Item, if_condition_holds, row_key};
use daybook_event_store::limits::{MAX_ITEM, MAX_TRANSACTION, MAX_TRANSACTION_ITEMS, item_size};
use daybook_table::{AggregateKey, attributes};
use jiff::Timestamp;
use tokio::time::timeout;

use crate::items::{POSITION, PartKey, Position, PositionItem, RowItem, View, is_conflict, read};
use crate::store::ViewStore;

/// Time limit of the call. DynamoDB responds in milliseconds. After a time-out, the positions show whether the call was
/// applied.
const CALL_TIMEOUT: Duration = Duration::from_secs(3);

/// The attribute of a part of a row that changes with each write of the part.
const WRITE_ID: &str = "writeId";

/// The attribute of a position that contains the number of the last folded event. Each fold of an event raises it.
const SEQ_NUM: &str = "seqNum";

/// The attribute of a position that contains when its aggregate was resumed. Each resumption changes it.
const RESUMED_AT: &str = "resumedAt";

const SUSPENDED: &str = "suspended";

#[derive(Clone, Debug, Default)]
pub struct ViewWrite {
    pub positions: BTreeMap<AggregateKey, PositionWrite>,
    pub rows: BTreeMap<PartKey, RowWrite>,
}

#[derive(Clone, Debug)]
pub struct PositionWrite {
    /// The number of the last event that was folded before; `None` if there was no position.
    pub before: Option<u64>,
    /// When the aggregate was resumed, if the position contained that. After a later resumption, the write fails, so that
    /// it cannot suspend the aggregate again.
    pub resumed_at: Option<String>,
    pub after: Position,
}

#[derive(Clone, Debug)]
pub struct RowWrite {
    /// The id of the write that stored the part; `None` if the part did not exist.
    pub before: Option<String>,
    /// The new contents of the part; `None` if it does not exist after the write.
    pub after: Option<Json>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    Written,
    /// A row or a position has changed since it was read, or is being changed. Nothing was written.
    Conflict,
    /// Unknown, for example because the response was lost. The positions show whether everything was written.
    Unknown,
}

#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// DynamoDB would reject the write because of its size, which the text contains.
    #[error("{0}")]
    TooLarge(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ViewStore {
    /// Writes rows and positions, all or nothing, if none of them has changed since it was read.
    pub async fn write(&self, view: &View, write: &ViewWrite) -> Result<WriteOutcome, WriteError> {
        let sealed = self.sealed(view, write).await?;
        let items = self.items(view, &sealed)?;
        let call = self.once.transact_write_items().set_transact_items(Some(items));
        let error = match timeout(CALL_TIMEOUT, call.send()).await {
            Ok(Ok(_)) => return Ok(WriteOutcome::Written),
            Ok(Err(error)) => error,
            Err(_elapsed) => return Ok(WriteOutcome::Unknown),
        };
        if let Some(TransactWriteItemsError::TransactionCanceledException(cancelled)) = error.as_service_error()
            && is_conflict(cancelled.cancellation_reasons())
        {
            return Ok(WriteOutcome::Conflict);
        }
        match StoreError::of_call("write a view", error) {
            StoreError::Unavailable { .. } => Ok(WriteOutcome::Unknown),
            error => Err(error.into()),
        }
    }

    async fn sealed<'a>(&self, view: &View, write: &'a ViewWrite) -> Result<Cow<'a, ViewWrite>, StoreError> {
        let rows = write.rows.values().filter_map(|row| row.after.as_ref());
        let mut texts = write.positions.values().map(|position| &position.after.state).chain(rows);
        if !texts.any(|json| personal::contains(json.text())) {
            return Ok(Cow::Borrowed(write));
        }
        let mut write = write.clone();
        for (key, position) in &mut write.positions {
            self.sealing.seal(&mut position.after.state, &view.position_pk(key)).await?;
        }
        for (key, row) in &mut write.rows {
            if let Some(row) = &mut row.after {
                self.sealing.seal(row, &view.rows_pk(key.part)).await?;
            }
        }
        Ok(Cow::Owned(write))
    }

    fn items(&self, view: &View, write: &ViewWrite) -> Result<Vec<TransactWriteItem>, WriteError> {
        let count = write.positions.len() + write.rows.len();
        if count > MAX_TRANSACTION_ITEMS {
            return Err(WriteError::TooLarge(format!(
                "it changes {count} rows and positions, a transaction holds {MAX_TRANSACTION_ITEMS}"
            )));
        }
        let (mut items, mut total) = (Vec::with_capacity(count), 0);
        let mut add = |(item, bytes): (TransactWriteItem, usize)| {
            total += bytes;
            items.push(item);
            let reason = || format!("a row or a position would take {bytes} bytes, an item holds {MAX_ITEM}");
            if bytes > MAX_ITEM { Err(WriteError::TooLarge(reason())) } else { Ok(()) }
        };
        for (aggregate, position) in &write.positions {
            add(self.position_item(view, aggregate, position))?;
        }
        for (key, row) in &write.rows {
            add(self.row_item(view, key, row))?;
        }
        let reason =
            || format!("the rows and positions would take {total} bytes, a transaction holds {MAX_TRANSACTION}");
        if total > MAX_TRANSACTION { Err(WriteError::TooLarge(reason())) } else { Ok(items) }
    }

    fn position_item(
        &self,
        view: &View,
        aggregate: &AggregateKey,
        write: &PositionWrite,
    ) -> (TransactWriteItem, usize) {
        let Position { seq_num, state, suspended, resumed_at } = write.after.clone();
        let (pk, sk) = (view.position_pk(aggregate), POSITION.to_owned());
        let item = PositionItem { pk, sk, seq_num, state: state.text().to_owned(), suspended, resumed_at };
        let before = write.before.map(|before| AttributeValue::N(before.to_string()));
        let (mut condition, mut values) = is_unchanged(SEQ_NUM, before);
        match &write.resumed_at {
            None => condition += &format!(" AND attribute_not_exists({RESUMED_AT})"),
            Some(at) => {
                condition += &format!(" AND {RESUMED_AT} = :resumedAt");
                values.get_or_insert_default().insert(":resumedAt".to_owned(), AttributeValue::S(at.clone()));
            }
        }
        self.put(serde_dynamo::to_item(item).expect("a position has an item"), (condition, values))
    }

    fn row_item(&self, view: &View, key: &PartKey, write: &RowWrite) -> (TransactWriteItem, usize) {
        let (pk, sk) = (view.rows_pk(key.part), key.key.clone());
        let (condition, values) = is_unchanged(WRITE_ID, write.before.clone().map(AttributeValue::S));
        if let Some(row) = &write.after {
            let write_id = format!("{:016x}", fastrand::u64(..));
            let item = RowItem { pk, sk, row: row.text().to_owned(), write_id };
            return self.put(serde_dynamo::to_item(item).expect("a row has an item"), (condition, values));
        }
        let key = row_key(pk, sk);
        let bytes = item_size(&key);
        let builder = TransactWriteItem::builder();
        let item = if write.before.is_some() {
            let delete = Delete::builder().table_name(&self.table_name).set_key(Some(key));
            let delete = delete.condition_expression(condition).set_expression_attribute_values(values).build();
            builder.delete(delete.expect("table and key are set"))
        } else {
            let check = ConditionCheck::builder().table_name(&self.table_name).set_key(Some(key));
            let check = check.condition_expression(condition).build();
            builder.condition_check(check.expect("table, key and condition are set"))
        };
        (item.build(), bytes)
    }

    fn put(&self, item: Item, (condition, values): Condition) -> (TransactWriteItem, usize) {
        let bytes = item_size(&item);
        let put = Put::builder().table_name(&self.table_name).set_item(Some(item));
        let put = put.condition_expression(condition).set_expression_attribute_values(values).build();
        (TransactWriteItem::builder().put(put.expect("table and item are set")).build(), bytes)
    }
}

type Condition = (String, Option<Item>);

/// The condition that an item still has this value, or still does not exist.
fn is_unchanged(attribute: &str, before: Option<AttributeValue>) -> Condition {
    match before {
        None => (format!("attribute_not_exists({})", attributes::PK), None),
        Some(value) => (format!("{attribute} = :before"), Some(Item::from([(":before".to_owned(), value)]))),
    }
}

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

    /// Does the same, and lets `send` send the projector a message about that event, without which the aggregate would wait for its
    /// next one. If it cannot be sent, nothing is resumed. It may be received too early, so another one follows. Returns whether the
    /// aggregate was suspended, or the error of `send`.
    pub async fn resume_and_send<E, F: Future<Output = Result<(), E>>>(
        &self,
        view: &View,
        aggregate: &AggregateKey,
        now: Timestamp,
        send: impl Fn(u64) -> F,
    ) -> Result<Result<bool, E>, StoreError> {
        let position = self.positions(view, &BTreeSet::from([aggregate.clone()])).await?.remove(aggregate);
        let Some(position) = position.filter(|position| position.suspended.is_some()) else { return Ok(Ok(false)) };
        if let Err(error) = send(position.seq_num + 1).await {
            return Ok(Err(error));
        }
        let Some(failed_event) = self.resume(view, aggregate, now).await? else { return Ok(Ok(false)) };
        Ok(send(failed_event).await.map(|()| true))
    }
}
