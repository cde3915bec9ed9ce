//! Every partition of the table, for the day when the index cannot be trusted to lead to it.

use aws_sdk_dynamodb::types::AttributeValue;
use daybook_table::attributes;

use crate::error::StoreError;
use crate::load::{Item, text};
use crate::store::EventStore;

/// Where a scan goes on: the keys of the last row that it saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanKey {
    /// The partition key.
    pub pk: String,
    /// The sort key.
    pub sk: String,
}

/// Some of the table's partitions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Partitions {
    /// Their keys, each once; the first may be the last of the page before.
    pub pks: Vec<String>,
    /// Where the next page begins; none when this was the last.
    pub next: Option<ScanKey>,
}

impl EventStore {
    /// The partitions that the next megabyte of the table belongs to. It reads the whole table, page by page, at the
    /// capacity of eventually consistent reads.
    ///
    /// # Errors
    ///
    /// See [`StoreError`].
    pub async fn partitions(&self, after: Option<ScanKey>) -> Result<Partitions, StoreError> {
        let start = after.map(|ScanKey { pk, sk }| {
            let keys = [(attributes::PK, pk), (attributes::SK, sk)];
            Item::from(keys.map(|(name, key)| (name.to_owned(), AttributeValue::S(key))))
        });
        let page = self
            .client
            .scan()
            .table_name(&self.settings.table_name)
            .projection_expression(attributes::PK)
            .set_exclusive_start_key(start)
            .send()
            .await
            .map_err(|fault| StoreError::of_call("scan the table", fault))?;
        let pk = |item: &Item| text(item, attributes::PK).to_owned();
        let mut pks: Vec<_> = page.items.unwrap_or_default().iter().map(pk).collect();
        // The rows of a partition come one after the other.
        pks.dedup();
        let next = page.last_evaluated_key;
        let next = next.map(|key| ScanKey { pk: pk(&key), sk: text(&key, attributes::SK).to_owned() });
        Ok(Partitions { pks, next })
    }
}
