//! Pages of rows in order: the cursor to continue from, and the rows that cannot be read.

use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;

use crate::error::{Cause, StoreError};
use crate::item::Item;
use crate::unreadable_row::UnreadableRow;

/// Maximum bytes of a page's events as JSON. Escaped as JSON in JSON, they may need twice as many, which still fit a Lambda
/// response of 6 MB.
const MAX_PAGE: usize = 2 * 1024 * 1024;

#[derive(Clone, Debug, PartialEq)]
pub struct Page<T, C> {
    /// The readable items in order; fewer than requested when items are large.
    pub items: Vec<T>,
    /// The rows that cannot be read. A row without a position in the order, because its sort key is wrong, may be on
    /// several pages.
    pub unreadable: Vec<UnreadableRow>,
    /// The position of the last row of the page, readable or not: the next page comes after it. It is the position
    /// that was requested when the page has no row.
    pub cursor: C,
    /// Whether more rows follow already.
    pub more: bool,
}

impl<T, C> Page<T, C> {
    /// The page without rows after `cursor`.
    pub fn empty(cursor: C) -> Self {
        Self { items: Vec::new(), unreadable: Vec::new(), cursor, more: false }
    }
}

/// The rows of one query, and whether more rows follow.
pub struct Slice<T, C> {
    pub rows: Vec<(C, Result<T, UnreadableRow>)>,
    pub unplaced: Vec<UnreadableRow>,
    pub more: bool,
}

impl<T, C> Slice<T, C> {
    /// The first rows of a query: a maximum of `limit` plus one, or 1 MB. If there is a row with a position, the slice
    /// has one, so that its cursor makes progress. `doing` is the purpose of the query, for errors.
    pub async fn read(
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
        while slice.more && slice.rows.is_empty() {
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
