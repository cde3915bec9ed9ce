//! Every partition of the table, for when the index may not lead to all of them.

use daybook_table::attributes;

use super::handle::Admin;
use crate::error::StoreError;
use crate::item::{Item, text};

/// The position at which a scan continues.
#[derive(Clone, Debug)]
pub struct ScanKey(Item);

/// Partition keys, and the position at which the scan continues; `None` at its end.
pub type PartitionPage = (Vec<String>, Option<ScanKey>);

impl Admin<'_> {
    /// The partition keys of the next megabyte of the table, each once; the first may equal the last of the page
    /// before. A full scan reads the whole table, page by page, at the capacity of eventually consistent reads.
    ///
    /// # Errors
    ///
    /// See [`StoreError`].
    pub async fn partitions(&self, after: Option<ScanKey>) -> Result<PartitionPage, StoreError> {
        let scan = self.store.client.scan().table_name(&self.store.settings.table_name);
        let page = scan
            .projection_expression(attributes::PK)
            .set_exclusive_start_key(after.map(|ScanKey(last)| last))
            .send()
            .await
            .map_err(|error| StoreError::of_call("scan the table", error))?;
        let rows = page.items.unwrap_or_default();
        let mut pks: Vec<_> = rows.iter().map(|row| text(row, attributes::PK).to_owned()).collect();
        // A scan returns the rows of a partition one after the other.
        pks.dedup();
        Ok((pks, page.last_evaluated_key.map(ScanKey)))
    }
}
