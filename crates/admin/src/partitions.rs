//! Every partition of the table, for when the index may not lead to all of them.

use daybook_event_store::StoreError;
use daybook_event_store::internal::{row_key, text};
use daybook_table::attributes;

use crate::handle::Admin;

/// The position at which a scan continues: after a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanKey {
    /// The partition key of the row.
    pub pk: String,
    /// Its sort key.
    pub sk: String,
}

/// Partition keys, and the position at which the scan continues; `None` at its end.
pub type PartitionPage = (Vec<String>, Option<ScanKey>);

impl Admin<'_> {
    /// The partition keys of the next megabyte of a segment of the table, each once; the first may equal the last of the
    /// page before. `segment` is its number, counted from 0, and the number of segments, which are disjoint and can be read
    /// in parallel. A full scan reads the whole table, page by page, at the capacity of eventually consistent reads.
    pub async fn partitions(
        &self,
        (segment, segments): (u32, u32),
        after: Option<&ScanKey>,
    ) -> Result<PartitionPage, StoreError> {
        let scan = self.store.client().scan().table_name(self.store.table_name());
        let page = scan
            .segment(i32::try_from(segment).unwrap_or(i32::MAX))
            .total_segments(i32::try_from(segments).unwrap_or(i32::MAX))
            .projection_expression(attributes::PK)
            .set_exclusive_start_key(after.map(|ScanKey { pk, sk }| row_key(pk.clone(), sk.clone())))
            .send()
            .await
            .map_err(|error| StoreError::of_call("scan the table", error))?;
        let rows = page.items.unwrap_or_default();
        let mut pks: Vec<_> = rows.iter().map(|row| text(row, attributes::PK).to_owned()).collect();
        // A scan returns the rows of a partition one after the other.
        pks.dedup();
        let key =
            |row| ScanKey { pk: text(&row, attributes::PK).to_owned(), sk: text(&row, attributes::SK).to_owned() };
        Ok((pks, page.last_evaluated_key.map(key)))
    }
}
