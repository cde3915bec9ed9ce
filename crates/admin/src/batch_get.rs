//! Reads of many rows by their keys: one call for a hundred of them.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use aws_sdk_dynamodb::types::{KeysAndAttributes, ReturnConsumedCapacity};
use daybook_event_store::StoreError;
use daybook_event_store::internal::{Item, row_key, text};
use daybook_table::attributes;
use tokio::time::sleep;

use crate::handle::Admin;

/// Maximum keys of one call.
const MAX_KEYS: usize = 100;

/// The first pause after a call that DynamoDB answered without any item, because it throttles. Each next one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// Maximum such calls in a row.
const MAX_PAUSES: u32 = 7;

/// Partition key and sort key.
pub(crate) type RowKey = (String, String);

impl Admin<'_> {
    /// The rows with these keys that exist, strongly consistent: all their attributes, or those of `projection`, which must
    /// contain the keys. `doing` is the purpose of the calls, for errors.
    pub(crate) async fn items(
        &self,
        doing: &'static str,
        keys: BTreeSet<RowKey>,
        projection: Option<String>,
    ) -> Result<HashMap<RowKey, Item>, StoreError> {
        let table = self.store.table_name();
        let mut found = HashMap::new();
        let mut left: Vec<Item> = keys.into_iter().map(|(pk, sk)| row_key(pk, sk)).collect();
        let mut pauses = 0;
        while !left.is_empty() {
            let now = left.split_off(left.len().saturating_sub(MAX_KEYS));
            let request = KeysAndAttributes::builder().set_keys(Some(now)).consistent_read(true);
            let request = request.set_projection_expression(projection.clone()).build().expect("the keys are set");
            let get = self.store.client().batch_get_item().request_items(table, request);
            let output = get.return_consumed_capacity(ReturnConsumedCapacity::Total).send().await;
            let output = output.map_err(|error| StoreError::of_call(doing, error))?;
            let items = output.responses.and_then(|mut tables| tables.remove(table)).unwrap_or_default();
            let unprocessed = output.unprocessed_keys.and_then(|mut tables| tables.remove(table));
            let unprocessed = unprocessed.map(|request| request.keys).unwrap_or_default();
            if items.is_empty() && !unprocessed.is_empty() {
                if pauses == MAX_PAUSES {
                    return Err(StoreError::Unavailable { doing, source: "it returns no rows".into() });
                }
                sleep(FIRST_PAUSE * 2_u32.pow(pauses)).await;
                pauses += 1;
            } else {
                pauses = 0;
            }
            left.extend(unprocessed);
            let key = |item: &Item| (text(item, attributes::PK).to_owned(), text(item, attributes::SK).to_owned());
            found.extend(items.into_iter().map(|item| (key(&item), item)));
        }
        Ok(found)
    }
}
