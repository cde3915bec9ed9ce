//! The rows of deadlines: one by its name, those of an aggregate, those by time, and their marks.

use aws_sdk_dynamodb::types::{ConditionCheck, TransactWriteItem};
use daybook_table::{AggregateKey, DeadlineItem, DeadlineState, attributes, keys};
use futures_util::future::try_join_all;
use jiff::Timestamp;

use crate::checksum::{rewritten, unchanged};
use crate::error::{Cause, StoreError};
use crate::item::{Item, row_key};
use crate::page::{Page, Slice};
use crate::store::EventStore;

#[derive(Clone, Debug, PartialEq)]
pub struct StoredDeadline {
    pub aggregate: AggregateKey,
    pub due: Timestamp,
    pub item: DeadlineItem,
    /// The row, which may have attributes of another release.
    row: Item,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadlineMark<'a> {
    Fired,
    /// Its command cannot be executed, for this reason, which is truncated to [`DeadlineItem::MAX_ERROR`] bytes.
    Failed(&'a str),
    /// Its command could not be executed for the first time, and is tried again. The row gets the time.
    Failing,
    /// Its command is to be sent again.
    Pending,
}

impl EventStore {
    /// The deadline of this name, with a strongly consistent read.
    pub async fn deadline(&self, key: &AggregateKey, name: &str) -> Result<Option<StoredDeadline>, StoreError> {
        let row = self.row("read a deadline", key, keys::deadline_sk(name)).await?;
        let corrupt = |source: Cause| StoreError::corrupt(format!("the deadline {name} of {key}"), source);
        row.map(StoredDeadline::read).transpose().map_err(corrupt)
    }

    /// All deadlines of an aggregate, whatever their state, in the order of their times, with a strongly consistent read.
    pub async fn deadlines_of(&self, key: &AggregateKey) -> Result<Page<StoredDeadline>, StoreError> {
        let condition = format!("{} = :pk AND begins_with({}, :deadline)", attributes::PK, attributes::SK);
        let values = [(":pk", keys::pk(key)), (":deadline", keys::DEADLINE_PREFIX.to_owned())];
        let query = self.query(condition, values).consistent_read(true);
        let found = Slice::by_time(query, usize::MAX, StoredDeadline::read).await?;
        Ok(Slice::merged(vec![found]).into_page(usize::MAX, String::new(), |_| 0))
    }

    /// The earliest deadlines in a state up to a time, in their order, from all shards of the index: a maximum of `limit`, and a few
    /// less if they are not spread evenly. The index has none that have fired.
    ///
    /// It costs a query for each shard, and the capacity of the rows, of which at most three times `limit` are read: each numbered
    /// shard gets its share, and that without a number all, because it has the rows of a time with fewer shards.
    pub async fn deadlines(
        &self,
        state: DeadlineState,
        until: Timestamp,
        limit: usize,
    ) -> Result<Page<StoredDeadline>, StoreError> {
        let partitions = match state {
            DeadlineState::Pending => keys::deadline_gsi1pks(self.settings.event_type_shards),
            DeadlineState::Failed => vec![keys::FAILED_DEADLINES.to_owned()],
            DeadlineState::Fired => Vec::new(),
        };
        let share = limit.min(limit.saturating_mul(2).div_ceil(partitions.len().max(1)));
        let condition = format!("{} = :pk AND {} <= :until", attributes::GSI1PK, attributes::GSI1SK);
        let read = partitions.into_iter().enumerate().map(|(number, partition)| {
            let share = if number == 0 { limit } else { share };
            let values = [(":pk", partition), (":until", keys::deadline_gsi1sk(until))];
            let query = self.query(condition.clone(), values).index_name(attributes::GSI1);
            Slice::by_time(query, share, StoredDeadline::read)
        });
        Ok(Slice::merged(try_join_all(read).await?).into_page(limit, String::new(), |_| 0))
    }

    /// Marks a deadline, unless its row has changed since it was read; then it returns `false`.
    pub async fn mark_deadline(&self, stored: &StoredDeadline, mark: DeadlineMark<'_>) -> Result<bool, StoreError> {
        let item = match mark {
            DeadlineMark::Fired => stored.item.clone().fired(),
            DeadlineMark::Failed(error) => stored.item.clone().failed(error, self.now()),
            DeadlineMark::Failing => stored.item.clone().failing(self.now()),
            DeadlineMark::Pending => stored.item.clone().pending(self.settings.event_type_shards),
        };
        let corrupt = |error| StoreError::corrupt(keys::pk(&stored.aggregate), error);
        let row = rewritten(stored.row.clone(), &DeadlineItem::OF_STATE, &item).map_err(corrupt)?;
        let checksum = stored.row.get(attributes::CHECKSUM);
        Ok(self.replace_row("mark a deadline", checksum, row.clone()).await? == row)
    }
}

impl StoredDeadline {
    pub fn read(row: Item) -> Result<Self, Cause> {
        let item: DeadlineItem = serde_dynamo::from_item(row.clone())?;
        let aggregate = keys::aggregate_of_pk(&item.pk).ok_or("its partition key is not that of an aggregate")?;
        let due = item.due.parse().map_err(|error| format!("its time {:?}: {error}", item.due))?;
        Ok(Self { aggregate, due, item, row })
    }

    /// The check that it was neither deleted, nor set again, nor marked since it was read.
    pub(crate) fn check(&self, table_name: &str) -> TransactWriteItem {
        let key = row_key(self.item.pk.clone(), self.item.sk.clone());
        let (unchanged, values) = unchanged(self.row.get(attributes::CHECKSUM));
        let check = ConditionCheck::builder().table_name(table_name).set_key(Some(key));
        let check = check.condition_expression(unchanged).set_expression_attribute_values(values);
        let check = check.expression_attribute_names("#sum", attributes::CHECKSUM).build();
        TransactWriteItem::builder().condition_check(check.expect("table, key and condition are set above")).build()
    }
}
