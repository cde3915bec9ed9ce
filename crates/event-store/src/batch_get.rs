//! Reads of many items by their keys: one call for a hundred of them.

use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{KeysAndAttributes, ReturnConsumedCapacity};
use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::time::sleep;

use crate::error::StoreError;
use crate::item::Item;

const MAX_KEYS: usize = 100;
const CONCURRENCY: usize = 8;
/// Maximum calls in a row that return no item: DynamoDB may leave keys for another call.
const MAX_CALLS: u32 = 8;
/// The pause before the second call for the same keys; it doubles with each further call.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// The items with these keys that exist, in any order, strongly consistent: all their attributes, or those of `projection`.
/// The keys must differ. `doing` is the purpose of the calls, for errors.
pub async fn batch_get(
    (client, table): (&Client, &str),
    keys: Vec<Item>,
    projection: Option<String>,
    doing: &'static str,
) -> Result<Vec<Item>, StoreError> {
    let read = async |mut keys: Vec<Item>| {
        let mut items = Vec::with_capacity(keys.len());
        let mut calls = 0;
        loop {
            let request = KeysAndAttributes::builder().set_keys(Some(keys)).consistent_read(true);
            let request = request.set_projection_expression(projection.clone()).build().expect("the keys are set");
            let get = client.batch_get_item().request_items(table, request);
            let output = get.return_consumed_capacity(ReturnConsumedCapacity::Total).send().await;
            let output = output.map_err(|error| StoreError::of_call(doing, error))?;
            let found = output.responses.and_then(|mut tables| tables.remove(table)).unwrap_or_default();
            calls = if found.is_empty() { calls + 1 } else { 1 };
            items.extend(found);
            let left = output.unprocessed_keys.and_then(|mut tables| tables.remove(table));
            keys = left.map(|request| request.keys).unwrap_or_default();
            if keys.is_empty() {
                break;
            }
            pause_before_rest(calls, doing).await?;
        }
        Ok::<_, StoreError>(items)
    };
    let chunks: Vec<_> = keys.chunks(MAX_KEYS).map(|keys| read(keys.to_vec())).collect();
    stream::iter(chunks).buffer_unordered(CONCURRENCY).try_concat().await
}

/// Waits before another call for the keys that DynamoDB has left after so many calls. The pause doubles with each call.
pub async fn pause_before_rest(calls: u32, doing: &'static str) -> Result<(), StoreError> {
    if calls == MAX_CALLS {
        let source = "DynamoDB left keys unprocessed again and again".into();
        return Err(StoreError::Unavailable { doing, source });
    }
    sleep((FIRST_PAUSE * 2_u32.pow(calls - 1)).mul_f64(0.5 + fastrand::f64() / 2.0)).await;
    Ok(())
}
