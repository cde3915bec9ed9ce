//! Deletes a version of a projection: its rows, its positions and its mark.

use aws_sdk_dynamodb::types::{AttributeValue, DeleteRequest, WriteRequest};
use daybook_event_store::StoreError;
use daybook_event_store::internal::{Backoff, Item, LEFT, PATIENCE};
use daybook_table::attributes;
use tokio::time::Instant;

use crate::items::View;
use crate::mark::mark_key;
use crate::store::ViewStore;

const MAX_DELETIONS: usize = 25;

#[derive(Clone, Debug, Default)]
pub struct DroppedItems {
    /// The keys of rows and positions that a page of the table contains.
    pub keys: Vec<Item>,
    /// Where the next page begins; `None` at the end.
    pub next: Option<Item>,
}

impl ViewStore {
    /// A page of the rows and positions of a version, in one of `segments` segments of the table, after the key
    /// `after`. Reads the whole table, page by page.
    pub async fn items_to_drop(
        &self,
        view: &View,
        (segment, segments): (i32, i32),
        after: Option<Item>,
    ) -> Result<DroppedItems, StoreError> {
        let scan = self.client.scan().table_name(&self.table_name).segment(segment).total_segments(segments);
        let scan = scan.filter_expression("begins_with(#pk, :rows) OR begins_with(#pk, :positions)");
        let scan = scan.projection_expression("#pk, #sk").set_exclusive_start_key(after).consistent_read(true);
        let scan =
            scan.expression_attribute_names("#pk", attributes::PK).expression_attribute_names("#sk", attributes::SK);
        let scan = scan.expression_attribute_values(":rows", AttributeValue::S(view.rows_prefix()));
        let scan = scan.expression_attribute_values(":positions", AttributeValue::S(view.positions_prefix()));
        let page = scan.send().await.map_err(|error| StoreError::of_call("find the rows of a view", error))?;
        Ok(DroppedItems { keys: page.items.unwrap_or_default(), next: page.last_evaluated_key })
    }

    /// Deletes the items with these keys, with one call for each 25 of them.
    pub async fn delete_items(&self, keys: &[Item]) -> Result<(), StoreError> {
        const DOING: &str = "delete rows of a view";
        for keys in keys.chunks(MAX_DELETIONS) {
            let deletion = |key: &Item| {
                let delete = DeleteRequest::builder().set_key(Some(key.clone())).build().expect("the key is set");
                WriteRequest::builder().delete_request(delete).build()
            };
            let mut requests: Vec<_> = keys.iter().map(deletion).collect();
            let mut pauses = Backoff::until(Instant::now() + PATIENCE);
            loop {
                let output = self.client.batch_write_item().request_items(&self.table_name, requests).send().await;
                let output = output.map_err(|error| StoreError::of_call(DOING, error))?;
                let left = output.unprocessed_items.and_then(|mut left| left.remove(&self.table_name));
                requests = left.unwrap_or_default();
                if requests.is_empty() {
                    break;
                }
                pauses.wait_or_fail(DOING, LEFT).await?;
            }
        }
        Ok(())
    }

    /// Deletes the mark of a version. Call it after the rows and positions are deleted.
    pub async fn delete_mark(&self, view: &View) -> Result<(), StoreError> {
        let delete = self.client.delete_item().table_name(&self.table_name).set_key(Some(mark_key(view)));
        delete.send().await.map(std::mem::drop).map_err(|error| StoreError::of_call("delete the mark of a view", error))
    }
}
