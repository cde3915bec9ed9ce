//! The rows of positions: how far the processes of a type have handled the events of another aggregate.

use daybook_decider::record::timestamp;
use daybook_table::{AggregateKey, PositionItem, attributes, keys};

use crate::checksum::rewritten;
use crate::error::{Cause, StoreError};
use crate::item::Item;
use crate::page::{Page, Slice};
use crate::store::EventStore;

#[derive(Clone, Debug, PartialEq)]
pub struct StoredPosition {
    /// The aggregate whose events are handled.
    pub source: AggregateKey,
    /// Of event 0 if there is no row.
    pub item: PositionItem,
    /// The row, which may have attributes of another release; empty if there is none.
    row: Item,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PositionMove<'a> {
    /// The events up to this number are handled.
    To(u64),
    /// The same, and the next one could not be handled for the first time, and is tried again.
    Fail(u64),
    /// This process, or [`PositionItem::ALL`], has handled the events up to this number, and cannot handle the next one, for this
    /// reason.
    Suspend(&'a str, u64, &'a str),
    /// The same was resumed, and has handled the events up to this number.
    Resume(&'a str, u64),
}

impl EventStore {
    /// The position of the processes of a type in the events of an aggregate, with a strongly consistent read.
    pub async fn position(&self, source: &AggregateKey, process_type: &str) -> Result<StoredPosition, StoreError> {
        let Some(row) = self.row("read a position", source, keys::position_sk(process_type)).await? else {
            let item = PositionItem::new(source, process_type, 0);
            return Ok(StoredPosition { source: source.clone(), item, row: Item::new() });
        };
        let item = || format!("the position of {process_type} in {source}");
        StoredPosition::read(row).map_err(|source| StoreError::corrupt(item(), source))
    }

    /// Moves a position, unless its row has changed since it was read; then it returns `false`. Otherwise, `stored` is the row that
    /// contains the move.
    pub async fn move_position(&self, stored: &mut StoredPosition, to: PositionMove<'_>) -> Result<bool, StoreError> {
        let StoredPosition { source, item, row: before } = &*stored;
        let item = PositionItem { failing_since: None, ..item.clone() };
        let item = match to {
            PositionMove::To(seq_num) => PositionItem { seq_num, ..item },
            PositionMove::Fail(seq_num) => PositionItem { seq_num, failing_since: Some(timestamp(self.now())), ..item },
            PositionMove::Suspend(who, seq_num, error) => item.suspend(who, seq_num, error, self.now()),
            PositionMove::Resume(who, seq_num) => item.resume(who, seq_num),
        };
        let corrupt = |error| StoreError::corrupt(keys::pk(source), error);
        let row = rewritten(before.clone(), &PositionItem::OPTIONAL, &item).map_err(corrupt)?;
        let checksum = before.get(attributes::CHECKSUM);
        let now = self.replace_row("move a position", checksum, row.clone()).await?;
        let Ok(now) = StoredPosition::read(now) else { return Ok(false) };
        // Others go on after a suspension at once, also before its lost response is noticed.
        let is_suspended = |who| now.item.suspended.get(who) == item.suspended.get(who);
        let is_moved = now.row == row || matches!(to, PositionMove::Suspend(who, ..) if is_suspended(who));
        if is_moved {
            *stored = now;
        }
        Ok(is_moved)
    }

    /// The positions with processes that are suspended, at most `limit`, those first that have been for the longest time.
    pub async fn suspended_positions(&self, limit: usize) -> Result<Page<StoredPosition>, StoreError> {
        let condition = format!("{} = :pk", attributes::GSI1PK);
        let query = self.query(condition, [(":pk", keys::SUSPENDED_POSITIONS.to_owned())]);
        let query = query.index_name(attributes::GSI1);
        Ok(Slice::by_time(query, limit, StoredPosition::read).await?.into_page(limit, String::new(), |_| 0))
    }
}

impl StoredPosition {
    fn read(row: Item) -> Result<Self, Cause> {
        let item: PositionItem = serde_dynamo::from_item(row.clone())?;
        let source = keys::aggregate_of_pk(&item.pk).ok_or("its partition key is not that of an aggregate")?;
        Ok(Self { source, item, row })
    }
}
