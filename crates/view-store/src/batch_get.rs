//! Reads of many items by their keys.

use std::time::Duration;

use aws_sdk_dynamodb::types::KeysAndAttributes;
use daybook_event_store::StoreError;
use futures_util::future::try_join_all;
use tokio::time::sleep;

use crate::items::Item;
use crate::store::ViewStore;

/// Maximum keys of a call.
const MAX_KEYS: usize = 100;

/// Maximum calls for the same keys: DynamoDB may leave some of them for another call.
const MAX_CALLS: u32 = 8;

/// The pause before the second call for the same keys; it doubles with each further call.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

impl ViewStore {
    /// The items with these keys that exist, in any order, strongly consistent. The keys must differ.
    pub(crate) async fn batch_get(&self, keys: Vec<Item>) -> Result<Vec<Item>, StoreError> {
        let chunks = keys.chunks(MAX_KEYS).map(|keys| self.batch_get_chunk(keys.to_vec()));
        Ok(try_join_all(chunks).await?.concat())
    }

    async fn batch_get_chunk(&self, mut keys: Vec<Item>) -> Result<Vec<Item>, StoreError> {
        const DOING: &str = "read a view";
        let mut items = Vec::with_capacity(keys.len());
        let mut pause = FIRST_PAUSE;
        for _ in 0..MAX_CALLS {
            let requested = KeysAndAttributes::builder().set_keys(Some(keys)).consistent_read(true).build();
            let requested = requested.expect("the keys are set");
            let output = self.client.batch_get_item().request_items(&self.table_name, requested).send().await;
            let output = output.map_err(|error| StoreError::of_call(DOING, error))?;
            items.extend(
                output.responses.into_iter().flat_map(|mut responses| responses.remove(&self.table_name)).flatten(),
            );
            let left = output.unprocessed_keys.and_then(|mut left| left.remove(&self.table_name));
            keys = left.map(|left| left.keys).unwrap_or_default();
            if keys.is_empty() {
                return Ok(items);
            }
            sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
            pause *= 2;
        }
        Err(StoreError::Unavailable { doing: DOING, source: "DynamoDB left keys unprocessed again and again".into() })
    }
}
