//! The changes of messages, until they are written in one transaction.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use aws_sdk_dynamodb::types::AttributeValue;
use serde_json::Value;

use crate::consumer::Consumer;
use crate::error::HandleError;
use crate::items::{
    IncompleteItem, Item, POSITION, PositionItem, REVISION, RowItem, WRITE_ID, WaitingItem, incomplete_pk, item,
    position_pk, primary_key, row_key, waiting_sk,
};
use crate::message::{AggregateId, BusMessage, Number};
use crate::rows::{Changes, RowKey, Rows};
use crate::table::StoredRow;
use crate::write::{Condition, MAX_ITEM, MAX_ITEMS, MAX_TRANSACTION, Write};

/// Maximum rows that one message reads and writes. The transaction also has the position, the aggregate in the list of
/// those that wait, and the stored message.
pub const MAX_ROWS: usize = MAX_ITEMS - 3;

/// Maximum characters of an error that are stored.
const MAX_ERROR: usize = 1_000;

#[derive(Clone, Debug)]
pub(crate) struct Draft<'a> {
    consumer: &'static str,
    aggregate: &'a AggregateId,
    /// The time, RFC 3339.
    now: String,
    before: PositionItem,
    pub(crate) position: PositionItem,
    /// The number of messages that are applied.
    pub(crate) applied: u64,
    /// The number of messages that were applied before and are of lost events.
    pub(crate) lost: u64,
    rows: BTreeMap<RowKey, DraftRow>,
    /// Messages that will wait, and stored messages that need not wait any more.
    stored: BTreeMap<Number, &'a BusMessage>,
    removed: BTreeSet<Number>,
}

/// A row that messages read or change.
#[derive(Clone, Debug)]
struct DraftRow {
    /// The condition that it has not changed since it was read.
    condition: Condition,
    /// Whether it exists in the table, as far as this is known.
    exists: bool,
    value: Option<Value>,
    is_changed: bool,
}

impl<'a> Draft<'a> {
    pub(crate) fn new(consumer: &'static str, aggregate: &'a AggregateId, before: PositionItem, now: String) -> Self {
        let position = before.clone();
        let (rows, stored, removed) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        Self { consumer, aggregate, now, before, position, applied: 0, lost: 0, rows, stored, removed }
    }

    /// Applies a message. `rows` contains the rows that it reads. `is_stored` is true if the message has waited.
    pub(crate) fn apply(
        &mut self,
        consumer: &impl Consumer,
        message: &BusMessage,
        rows: &BTreeMap<RowKey, Option<StoredRow>>,
        is_stored: bool,
    ) -> Result<(), HandleError> {
        let mut read = BTreeMap::new();
        for key in reads(consumer, message)? {
            let row = self.rows.entry(key.clone()).or_insert_with(|| DraftRow::read(rows.get(&key).cloned().flatten()));
            read.insert(key, row.value.clone());
        }
        for (key, value) in handle(consumer, message, &Rows(&read))?.0 {
            key.check()?;
            let row = self.rows.entry(key).or_insert_with(DraftRow::unread);
            (row.value, row.is_changed) = (value, true);
        }
        let Number { epoch, message_seq } = message.number();
        if epoch > self.position.epoch {
            self.lost += (self.position.message_seq + 1).saturating_sub(message_seq);
        }
        self.position = PositionItem {
            message_id: Some(message.metadata.message_id.clone()),
            ..at(message.number(), self.position.clone())
        };
        self.applied += 1;
        if is_stored {
            self.removed.insert(message.number());
        }
        Ok(())
    }

    /// Records that this number of attempts at the next message failed.
    pub(crate) fn fail(&mut self, attempts: u32, error: &HandleError) {
        self.position.attempts = attempts;
        self.position.error = Some(error.to_string().chars().take(MAX_ERROR).collect());
    }

    pub(crate) fn skip(&mut self, through: Number) {
        self.position = at(through, self.position.clone());
    }

    pub(crate) fn forget_failures(&mut self) {
        (self.position.attempts, self.position.error) = (0, None);
    }

    /// Stores a message until its turn comes. The error is the size of its item in bytes, if it is too large.
    pub(crate) fn store(&mut self, message: &'a BusMessage) -> Result<(), usize> {
        let bytes = self.store_write(message.number(), message).size();
        if bytes > MAX_ITEM {
            return Err(bytes);
        }
        self.stored.insert(message.number(), message);
        Ok(())
    }

    pub(crate) fn remove(&mut self, number: Number) {
        self.removed.insert(number);
    }

    /// The number of messages that wait afterwards.
    fn waiting(&self) -> u64 {
        (self.before.waiting + self.stored.len() as u64).saturating_sub(self.removed.len() as u64)
    }

    pub(crate) fn has_changes(&self) -> bool {
        self.position != self.before || !self.stored.is_empty() || !self.removed.is_empty()
    }

    /// The reason why one transaction cannot hold the draft, if there is one.
    pub(crate) fn excess(&self) -> Option<String> {
        let writes = self.writes();
        // The aggregate may still be added to those whose messages wait, or removed.
        let count = writes.len() + usize::from(self.incomplete_write().is_none());
        let largest = writes.iter().map(Write::size).max().unwrap_or_default();
        let total: usize = writes.iter().map(Write::size).sum();
        if count > MAX_ITEMS {
            Some(format!("it reads and writes {} rows, a transaction holds {MAX_ROWS}", self.rows.len()))
        } else if largest > MAX_ITEM {
            Some(format!("a row would take {largest} bytes, an item holds {MAX_ITEM}"))
        } else if total > MAX_TRANSACTION {
            Some(format!("it writes {total} bytes, a transaction holds {MAX_TRANSACTION}"))
        } else {
            None
        }
    }

    /// The writes of the transaction. The position is the first.
    pub(crate) fn writes(&self) -> Vec<Write> {
        let position_key = primary_key(position_pk(self.consumer, self.aggregate), POSITION.to_owned());
        let revision = self.before.revision;
        let is_unchanged = match revision {
            0 => Condition::Missing,
            revision => Condition::Unchanged(REVISION, AttributeValue::N(revision.to_string())),
        };
        let (waiting, updated_at) = (self.waiting(), self.now.clone());
        let position = PositionItem { revision: revision + 1, waiting, updated_at, ..self.position.clone() };
        let mut writes = vec![Write::Put(item(position_key, position), is_unchanged)];
        writes.extend(self.incomplete_write());
        writes.extend(self.stored.iter().map(|(number, message)| self.store_write(*number, message)));
        writes.extend(self.removed.iter().map(|number| Write::Delete(self.waiting_key(*number), Condition::Always)));
        writes.extend(self.rows.iter().filter_map(|(key, row)| row.write(self.consumer, key)));
        writes
    }

    fn store_write(&self, number: Number, message: &BusMessage) -> Write {
        Write::Put(item(self.waiting_key(number), WaitingItem::new(message, &self.now)), Condition::Always)
    }

    fn waiting_key(&self, number: Number) -> Item {
        primary_key(position_pk(self.consumer, self.aggregate), waiting_sk(number))
    }

    /// Adds the aggregate to those whose messages wait, or removes it.
    fn incomplete_write(&self) -> Option<Write> {
        let key = || primary_key(incomplete_pk(self.consumer), self.aggregate.to_string());
        match (self.before.waiting > 0, self.waiting() > 0) {
            (false, true) => {
                let AggregateId { aggregate_type, id } = self.aggregate.clone();
                let incomplete = IncompleteItem { aggregate_type, aggregate_id: id, since: self.now.clone() };
                Some(Write::Put(item(key(), incomplete), Condition::Always))
            }
            (true, false) => Some(Write::Delete(key(), Condition::Always)),
            _ => None,
        }
    }
}

/// The position after a message, without failed attempts.
fn at(number: Number, position: PositionItem) -> PositionItem {
    let Number { epoch, message_seq } = number;
    PositionItem { epoch, message_seq, message_id: None, attempts: 0, error: None, ..position }
}

impl DraftRow {
    fn read(stored: Option<StoredRow>) -> Self {
        let Some(StoredRow { row, write_id }) = stored else {
            return Self { condition: Condition::Missing, ..Self::unread() };
        };
        let condition = Condition::Unchanged(WRITE_ID, AttributeValue::S(write_id));
        Self { condition, exists: true, value: Some(row), is_changed: false }
    }

    fn unread() -> Self {
        Self { condition: Condition::Always, exists: false, value: None, is_changed: false }
    }

    fn write(&self, consumer: &'static str, key: &RowKey) -> Option<Write> {
        let (key, condition) = (row_key(consumer, key), self.condition.clone());
        match &self.value {
            Some(value) if self.is_changed => {
                let write_id = format!("{:016x}", fastrand::u64(..));
                Some(Write::Put(item(key, RowItem { row: value.to_string(), write_id }), condition))
            }
            None if self.is_changed && (self.exists || matches!(condition, Condition::Always)) => {
                Some(Write::Delete(key, condition))
            }
            _ => Some(Write::Check(key, condition)),
        }
    }
}

pub(crate) fn reads(consumer: &impl Consumer, message: &BusMessage) -> Result<Vec<RowKey>, HandleError> {
    let keys = catch("reads", || consumer.reads(message))?;
    keys.iter().try_for_each(RowKey::check)?;
    Ok(keys)
}

pub(crate) fn handle(consumer: &impl Consumer, message: &BusMessage, rows: &Rows<'_>) -> Result<Changes, HandleError> {
    catch("handle", || consumer.handle(message, rows))
}

/// Calls a function of the consumer. Returns a panic as an error of its message, so that other messages go on.
fn catch<T>(name: &str, call: impl FnOnce() -> Result<T, HandleError>) -> Result<T, HandleError> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        Err(HandleError::new(format!("`{name}` panicked: {text}")))
    })
}
