//! Reads rows for readers.

use std::collections::BTreeMap;
use std::time::Duration;

use aws_sdk_dynamodb::operation::transact_get_items::TransactGetItemsError;
use aws_sdk_dynamodb::types::{AttributeValue, Get, TransactGetItem};
use daybook_decider::Json;
use daybook_event_store::StoreError;
use daybook_event_store::internal::{Backoff, Item, row_key};
use daybook_table::{AggregateKey, attributes};
use futures_util::future::{try_join, try_join_all};
use tokio::time::Instant;

use crate::items::{RowItem, View, is_conflict, json, part_of, read};
use crate::store::ViewStore;

/// Maximum bytes of a sort key. Longer texts in requests match no row, and DynamoDB rejects them.
const MAX_SORT_KEY: usize = 1024;

/// Maximum time for which an item is read again because a transaction is changing it.
const MAX_CHANGING: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, Default)]
pub struct RowRange<'a> {
    pub prefix: &'a str,
    pub from: Option<&'a str>,
    pub to: Option<&'a str>,
    /// The key that they come after, in the order of the list.
    pub after: Option<&'a str>,
    pub descending: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownRow {
    pub key: String,
    /// Its parts; at least one.
    pub parts: Vec<Json>,
    /// Changes whenever a part changes.
    pub etag: String,
}

impl RowRange<'_> {
    /// The least and the greatest key that a query finds; `None` if DynamoDB would reject the query, because no key is between.
    ///
    /// In the order of the list, the row of the cursor may come first.
    fn ends(&self) -> Option<(String, String)> {
        let Self { prefix, from, to, after, descending } = *self;
        let after = after.filter(|after| !after.is_empty());
        // The least text, because an empty one is no key.
        let mut first = prefix.max(from.unwrap_or_default()).max("\0").to_owned();
        // The greatest key with the prefix: the greatest character of each length in bytes, while there is room for it.
        let mut last = prefix.to_owned();
        for greatest in [char::MAX, '\u{ffff}', '\u{7ff}', '\u{7f}'] {
            while last.len() + greatest.len_utf8() <= MAX_SORT_KEY {
                last.push(greatest);
            }
        }
        if let Some(to) = to {
            last = last.min(to.to_owned());
        }
        match after {
            Some(after) if descending => last = last.min(after.to_owned()),
            Some(after) => first = first.max(format!("{after}\0")),
            None => {}
        }
        // DynamoDB rejects longer ends. At least 1,021 bytes stay, and a row's key has up to 1,020: it is never equal to such an
        // end, and compares with its beginning as with the whole.
        for end in [&mut first, &mut last] {
            end.truncate(end.floor_char_boundary(MAX_SORT_KEY));
        }
        (prefix.len() <= MAX_SORT_KEY && first <= last).then_some((first, last))
    }
}

impl ViewStore {
    /// The row with this key, if it exists, strongly consistent.
    pub async fn row(&self, view: &View, part_count: u32, key: &str) -> Result<Option<ShownRow>, StoreError> {
        if key.len() > MAX_SORT_KEY {
            return Ok(None);
        }
        let keys = (0..part_count).map(|part| row_key(view.rows_pk(part), key.to_owned())).collect();
        let items = self.batch_get(keys).await?.into_iter().map(read).collect::<Result<_, _>>()?;
        Ok(self.shown(items).await?.pop())
    }

    /// The row with this key, if it exists. It shows each event of the aggregate up to a position that was read before.
    ///
    /// The items of a transaction become visible one after the other. After a read of the new position, a read of the
    /// row may still return the old row. So the part that the aggregate changes is read in a transaction, which fails
    /// as long as another transaction is changing the part.
    pub async fn row_after(
        &self,
        view: &View,
        part_count: u32,
        key: &str,
        aggregate: &AggregateKey,
    ) -> Result<Option<ShownRow>, StoreError> {
        if key.len() > MAX_SORT_KEY {
            return Ok(None);
        }
        let item_key = |part| row_key(view.rows_pk(part), key.to_owned());
        let own = part_of(aggregate, part_count);
        let others = (0..part_count).filter(|&part| part != own).map(item_key).collect();
        let (own, others) = try_join(self.transact_get(item_key(own)), self.batch_get(others)).await?;
        let items = own.into_iter().chain(others).map(read).collect::<Result<_, _>>()?;
        Ok(self.shown(items).await?.pop())
    }

    /// The item with this key, if it exists. Waits until no transaction is changing it, for up to [`MAX_CHANGING`].
    async fn transact_get(&self, key: Item) -> Result<Option<Item>, StoreError> {
        const DOING: &str = "read a row that is changing";
        let get = Get::builder().table_name(&self.table_name).set_key(Some(key)).build();
        let get = TransactGetItem::builder().get(get.expect("table and key are set")).build();
        let mut pauses = Backoff::until(Instant::now() + MAX_CHANGING);
        loop {
            let error = match self.client.transact_get_items().transact_items(get.clone()).send().await {
                Ok(output) => return Ok(output.responses.and_then(|mut found| found.pop()?.item)),
                Err(error) => error,
            };
            let reasons = match error.as_service_error() {
                Some(TransactGetItemsError::TransactionCanceledException(cancelled)) => {
                    cancelled.cancellation_reasons()
                }
                _ => &[],
            };
            if !is_conflict(reasons) {
                return Err(StoreError::of_call(DOING, error));
            }
            pauses.wait_or_fail(DOING, "other transactions change it again and again").await?;
        }
    }

    /// Up to `limit` rows in the order of their keys. Also returns whether more follow.
    pub async fn list(
        &self,
        view: &View,
        part_count: u32,
        range: RowRange<'_>,
        limit: usize,
    ) -> Result<(Vec<ShownRow>, bool), StoreError> {
        let Some(ends) = range.ends() else { return Ok((Vec::new(), false)) };
        // Downwards, a slice may begin with the row of the cursor.
        let most = limit + 1 + usize::from(range.descending);
        let slice = |part| self.list_part(view.rows_pk(part), ends.clone(), range.descending, most);
        let slices = try_join_all((0..part_count).map(slice)).await?;
        // After the last row of a slice that has more rows, a part of a row may be missing.
        let ends =
            slices.iter().filter(|(_, more)| *more).filter_map(|(rows, _)| rows.last()).map(|row| row.sk.clone());
        let horizon = if range.descending { ends.max() } else { ends.min() };
        let more = horizon.is_some();
        let rows = slices.into_iter().flat_map(|(rows, _)| rows);
        let is_within = |row: &RowItem, horizon: &String| {
            if range.descending { row.sk >= *horizon } else { row.sk <= *horizon }
        };
        let rows = rows.filter(|row| horizon.as_ref().is_none_or(|horizon| is_within(row, horizon)));
        let mut rows = self.shown(rows.filter(|row| range.after != Some(&row.sk)).collect()).await?;
        if range.descending {
            rows.reverse();
        }
        let more = more || rows.len() > limit;
        rows.truncate(limit);
        Ok((rows, more))
    }

    async fn list_part(
        &self,
        partition: String,
        (first, last): (String, String),
        descending: bool,
        limit: usize,
    ) -> Result<(Vec<RowItem>, bool), StoreError> {
        let condition = format!("{} = :pk AND {} BETWEEN :first AND :last", attributes::PK, attributes::SK);
        let query = self.client.query().table_name(&self.table_name).consistent_read(true);
        let query = query.key_condition_expression(condition);
        let query = query.expression_attribute_values(":pk", AttributeValue::S(partition));
        let query = query.expression_attribute_values(":first", AttributeValue::S(first));
        let query = query.expression_attribute_values(":last", AttributeValue::S(last));
        let query = query.limit(i32::try_from(limit).unwrap_or(i32::MAX)).scan_index_forward(!descending);
        let page = query.send().await.map_err(|error| StoreError::of_call("list a view", error))?;
        let rows = page.items.unwrap_or_default().into_iter().map(read).collect::<Result<_, _>>()?;
        Ok((rows, page.last_evaluated_key.is_some()))
    }

    /// The rows that these parts belong to, in the order of their keys.
    async fn shown(&self, parts: Vec<RowItem>) -> Result<Vec<ShownRow>, StoreError> {
        let mut rows: BTreeMap<String, Vec<(String, Json, String)>> = BTreeMap::new();
        for RowItem { pk, sk, row, write_id } in parts {
            let row = json(&sk, row)?;
            rows.entry(sk).or_default().push((pk, row, write_id));
        }
        let parts = rows.values_mut().flatten();
        self.sealing.open(parts.map(|(pk, row, _)| (pk.clone(), row))).await?;
        let shown = rows.into_iter().map(|(key, mut parts)| {
            parts.sort_by(|(one, ..), (other, ..)| one.cmp(other));
            let etag = parts.iter().map(|(_, _, write_id)| write_id.as_str()).collect::<Vec<_>>().join("-");
            ShownRow { key, parts: parts.into_iter().map(|(_, row, _)| row).collect(), etag }
        });
        Ok(shown.collect())
    }
}
