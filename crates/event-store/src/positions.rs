//! The rows of positions: how far the processes of a type have handled the events of another aggregate.

use daybook_table::{AggregateKey, PositionItem, attributes, keys};

use crate::checksum::seal;
use crate::deadlines::rows_of;
use crate::error::{Cause, StoreError};
use crate::item::Item;
use crate::page::UnreadableRow;
use crate::store::EventStore;

/// A position as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredPosition {
    /// The aggregate whose events are handled.
    pub source: AggregateKey,
    /// Of event 0 if there is no row.
    pub item: PositionItem,
    /// The row, which may have attributes of another release; empty if there is none.
    row: Item,
}

/// Positions that are suspended, those first that have been for the longest time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FoundPositions {
    pub positions: Vec<StoredPosition>,
    pub unreadable: Vec<UnreadableRow>,
    /// Whether there are more, all of them later.
    pub more: bool,
}

/// The next value of a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PositionMove<'a> {
    /// The events up to this number are handled. A position that was suspended goes on after it.
    To(u64),
    /// The events up to this number are handled, and the next one cannot be, for this reason.
    Suspend(u64, &'a str),
    /// The events up to this number are handled. The next one could not be handled for the first time, and is tried again.
    Fail(u64),
}

impl EventStore {
    /// The positions of the processes of a type in the events of an aggregate: first that of all, then those that a process has of
    /// its own. With a strongly consistent read.
    pub async fn positions(
        &self,
        source: &AggregateKey,
        process_type: &str,
    ) -> Result<Vec<StoredPosition>, StoreError> {
        let (first, last) = (keys::position_sk(process_type), keys::position_sk(&format!("{process_type}#~")));
        let output = self.rows_between(source, first, last).send().await;
        let output = output.map_err(|error| StoreError::of_call("read positions", error))?;
        let item = || format!("a position of {process_type} in {source}");
        let read = |row| StoredPosition::read(row).map_err(|source| StoreError::corrupt(item(), source));
        let mut found = output.items.unwrap_or_default().into_iter().map(read).collect::<Result<Vec<_>, _>>()?;
        if found.first().is_none_or(|first| first.item.process_id().is_some()) {
            found.insert(0, StoredPosition::none(source, process_type));
        }
        Ok(found)
    }

    /// Moves a position, unless its row has changed since it was read; then it returns `false`. Otherwise, `stored` is the new
    /// row.
    pub async fn move_position(&self, stored: &mut StoredPosition, to: PositionMove<'_>) -> Result<bool, StoreError> {
        let StoredPosition { source, item, row: before } = &*stored;
        let at = |seq_num| PositionItem::new(source, item.processes(), seq_num);
        let item = match to {
            PositionMove::To(seq_num) => at(seq_num),
            PositionMove::Suspend(seq_num, error) => at(seq_num).suspended(error, self.now()),
            PositionMove::Fail(seq_num) => at(seq_num).failing(self.now()),
        };
        let mut row = before.clone();
        row.retain(|name, _| !PositionItem::OF_FAILING.contains(&name.as_str()));
        let corrupt = |error: serde_dynamo::Error| StoreError::corrupt(keys::pk(source), error);
        row.extend::<Item>(serde_dynamo::to_item(&item).map_err(corrupt)?);
        let row = seal(row);
        let checksum = before.get(attributes::CHECKSUM);
        let is_moved = self.replace_row("move a position", checksum, row.clone()).await?;
        if is_moved {
            *stored = StoredPosition { source: source.clone(), item, row };
        }
        Ok(is_moved)
    }

    /// The positions that are suspended, at most `limit`.
    pub async fn suspended_positions(&self, limit: usize) -> Result<FoundPositions, StoreError> {
        let condition = format!("{} = :pk", attributes::GSI1PK);
        let query = self.query(condition, [(":pk", keys::SUSPENDED_POSITIONS.to_owned())]);
        let (rows, more) = rows_of(query.index_name(attributes::GSI1), limit).await?;
        let mut found = FoundPositions { more, ..FoundPositions::default() };
        for row in rows {
            let unreadable = UnreadableRow::of(&row);
            match StoredPosition::read(row) {
                Ok(position) => found.positions.push(position),
                Err(error) => found.unreadable.push(unreadable.because(error)),
            }
        }
        Ok(found)
    }
}

impl StoredPosition {
    /// The position of processes that have no row.
    pub fn none(source: &AggregateKey, processes: &str) -> Self {
        Self { source: source.clone(), item: PositionItem::new(source, processes, 0), row: Item::new() }
    }

    fn read(row: Item) -> Result<Self, Cause> {
        let item: PositionItem = serde_dynamo::from_item(row.clone())?;
        let source = keys::aggregate_of_pk(&item.pk).ok_or("its partition key is not that of an aggregate")?;
        Ok(Self { source, item, row })
    }
}
