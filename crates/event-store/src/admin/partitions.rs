//! Every partition of the table, for the day when the index cannot be trusted to lead to it.

use daybook_table::attributes;

use super::handle::Admin;
use crate::error::StoreError;
use crate::feed::Page;
use crate::item::{Item, text};

/// Where a scan goes on.
#[derive(Clone, Debug)]
pub struct ScanKey(Item);

impl Admin<'_> {
    /// The partition keys of the next megabyte of the table, each once; the first may be the last of the page before. It
    /// reads the whole table, page by page, at the capacity of eventually consistent reads.
    ///
    /// # Errors
    ///
    /// See [`StoreError`].
    pub async fn partitions(&self, after: Option<ScanKey>) -> Result<Page<String, ScanKey>, StoreError> {
        let scan = self.store.client.scan().table_name(&self.store.settings.table_name);
        let page = scan
            .projection_expression(attributes::PK)
            .set_exclusive_start_key(after.map(|ScanKey(last)| last))
            .send()
            .await
            .map_err(|error| StoreError::of_call("scan the table", error))?;
        let rows = page.items.unwrap_or_default();
        let mut pks: Vec<_> = rows.iter().map(|row| text(row, attributes::PK).to_owned()).collect();
        // The rows of a partition come one after the other.
        pks.dedup();
        Ok(Page { items: pks, next: page.last_evaluated_key.map(ScanKey) })
    }
}
