//! Pages of rows in order: the cursor to continue from, and the rows that cannot be read, which lists and feeds report beside the
//! readable items, so that one of them does not hide the others.

use std::fmt;

use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use daybook_table::{AggregateKey, attributes, keys};

use crate::error::{Cause, StoreError};
use crate::item::{Item, text};

/// Maximum bytes of a page's events as JSON. Escaped as JSON in JSON, they may need twice as many, which still fit a Lambda
/// response of 6 MB.
const MAX_PAGE: usize = 2 * 1024 * 1024;

/// Maximum characters of a reason: it may quote a value of the row.
const MAX_REASON: usize = 300;

/// Rows in an order, after a position in it. `C` is the type of a position: the sort key of the table or index, unless it is parsed.
#[derive(Clone, Debug, PartialEq)]
pub struct Page<T, C = String> {
    /// The readable items in order; fewer than requested when items are large.
    pub items: Vec<T>,
    /// The rows that cannot be read. A row without a position in the order, because its sort key is wrong, may be on
    /// several pages.
    pub unreadable: Vec<UnreadableRow>,
    /// The position of the last row of the page, readable or not: the next page comes after it. It is the position
    /// that was requested when the page has no row.
    pub cursor: C,
    pub more: bool,
}

impl<T, C> Page<T, C> {
    /// The page without rows after `cursor`.
    pub fn empty(cursor: C) -> Self {
        Self { items: Vec::new(), unreadable: Vec::new(), cursor, more: false }
    }
}

/// The rows of one query, or of several in one order, and whether more rows follow.
pub struct Slice<T, C = String> {
    pub rows: Vec<(C, Result<T, UnreadableRow>)>,
    pub unplaced: Vec<UnreadableRow>,
    pub more: bool,
}

impl<T> Slice<T> {
    /// The first `limit` rows of a query, each with its time in the index, and whether there are more.
    pub(crate) async fn by_time(
        query: QueryFluentBuilder,
        limit: usize,
        read: impl Fn(Item) -> Result<T, Cause>,
    ) -> Result<Self, StoreError> {
        let time = |row: &Item| Some(text(row, attributes::GSI1SK).to_owned());
        let least = limit.saturating_add(1);
        let mut slice = Self::read_at_least(least, "read rows of the index", query, limit, time, read).await?;
        slice.more = slice.rows.len() > limit;
        slice.rows.truncate(limit);
        Ok(slice)
    }
}

impl<T, C: Ord + Clone> Slice<T, C> {
    /// The first rows of a query: a maximum of `limit` plus one, or 1 MB. If there is a row with a position, the slice
    /// has one, so that its cursor makes progress. `doing` is the purpose of the query, for errors.
    pub async fn read(
        doing: &'static str,
        query: QueryFluentBuilder,
        limit: usize,
        position: impl Fn(&Item) -> Option<C>,
        read: impl Fn(Item) -> Result<T, Cause>,
    ) -> Result<Self, StoreError> {
        Self::read_at_least(1, doing, query, limit, position, read).await
    }

    /// The same, with so many rows, however many bytes they have, if there are as many.
    async fn read_at_least(
        least: usize,
        doing: &'static str,
        query: QueryFluentBuilder,
        limit: usize,
        position: impl Fn(&Item) -> Option<C>,
        read: impl Fn(Item) -> Result<T, Cause>,
    ) -> Result<Self, StoreError> {
        // The extra row shows whether there are more.
        let query = query.limit(i32::try_from(limit.saturating_add(1)).unwrap_or(i32::MAX));
        let mut slice = Self { rows: Vec::new(), unplaced: Vec::new(), more: true };
        let mut start = None;
        while slice.more && slice.rows.len() < least {
            let page = query.clone().set_exclusive_start_key(start).send().await;
            let page = page.map_err(|error| StoreError::of_call(doing, error))?;
            start = page.last_evaluated_key;
            slice.more = start.is_some();
            for item in page.items.unwrap_or_default() {
                let row = UnreadableRow::of(&item);
                match position(&item) {
                    Some(position) => slice.rows.push((position, read(item).map_err(|error| row.because(error)))),
                    None => slice.unplaced.push(row.because("its keys are not those of an event")),
                }
            }
        }
        Ok(slice)
    }

    /// The rows of all slices in their order, up to the end of the first slice after which there are more: rows that are missing
    /// there may come first.
    pub(crate) fn merged(slices: Vec<Self>) -> Self {
        let ends = slices.iter().filter(|slice| slice.more);
        let end = ends.map(|slice| slice.rows.last().map(|(position, _)| position.clone())).min();
        let mut merged = Self { rows: Vec::new(), unplaced: Vec::new(), more: end.is_some() };
        for slice in slices {
            merged.rows.extend(slice.rows);
            merged.unplaced.extend(slice.unplaced);
        }
        merged.rows.sort_by(|(one, _), (other, _)| one.cmp(other));
        if let Some(end) = end.flatten() {
            merged.rows.retain(|(position, _)| *position <= end);
        }
        merged
    }

    /// Truncates to `limit` rows and `MAX_PAGE` bytes. `after` is the position that was requested.
    pub fn into_page(self, limit: usize, after: C, weight: impl Fn(&T) -> usize) -> Page<T, C> {
        let mut page = Page { unreadable: self.unplaced, more: self.more, ..Page::empty(after) };
        let mut bytes_left = MAX_PAGE;
        for (count, (position, row)) in self.rows.into_iter().enumerate() {
            let bytes = row.as_ref().map_or(0, &weight);
            if count == limit || bytes > bytes_left {
                page.more = true;
                break;
            }
            bytes_left -= bytes;
            page.cursor = position;
            match row {
                Ok(item) => page.items.push(item),
                Err(unreadable) => page.unreadable.push(unreadable),
            }
        }
        page
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableRow {
    pub pk: String,
    pub sk: String,
    /// The reason. It is for operators: it may quote stored data.
    pub reason: String,
}

impl UnreadableRow {
    /// The row with the keys of an item, and without a reason yet.
    pub fn of(item: &Item) -> Self {
        let key = |name| text(item, name).to_owned();
        Self { pk: key(attributes::PK), sk: key(attributes::SK), reason: String::new() }
    }

    pub fn because(self, reason: impl fmt::Display) -> Self {
        Self { reason: reason.to_string().chars().take(MAX_REASON).collect(), ..self }
    }

    pub fn aggregate(&self) -> Option<AggregateKey> {
        keys::aggregate_of_pk(&self.pk)
    }

    /// The number of the event, if its sort key is that of an event.
    pub fn seq_num(&self) -> Option<u64> {
        keys::event_seq_num(&self.sk)
    }
}

impl fmt::Display for UnreadableRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.pk, self.sk)
    }
}
