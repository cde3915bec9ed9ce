//! Items in the SDK's form, and reads of many by their keys: one call for a hundred of them.

use std::collections::HashMap;
use std::str::FromStr;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{AttributeValue, KeysAndAttributes, ReturnConsumedCapacity};
use daybook_table::{EventItem, attributes};
use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::error::StoreError;

pub type Item = HashMap<String, AttributeValue>;

pub fn row_key(pk: String, sk: String) -> Item {
    let key = [(attributes::PK, pk), (attributes::SK, sk)];
    Item::from(key.map(|(name, value)| (name.to_owned(), AttributeValue::S(value))))
}

/// The text of an attribute; empty when it is absent or not a text.
pub fn text<'a>(item: &'a Item, name: &str) -> &'a str {
    item.get(name).and_then(|value| value.as_s().ok()).map(String::as_str).unwrap_or_default()
}

/// The number of an attribute; `None` when it is absent or not a number of this type.
pub fn number<N: FromStr>(item: &Item, name: &str) -> Option<N> {
    item.get(name)?.as_n().ok()?.parse().ok()
}

pub fn event_item(item: Item) -> Result<EventItem, StoreError> {
    let keys = format!("item {} {}", text(&item, attributes::PK), text(&item, attributes::SK));
    serde_dynamo::from_item(item).map_err(|error| StoreError::corrupt(keys, error))
}

const MAX_BATCH: usize = 100;

const CONCURRENCY: usize = 8;

/// The time in which calls for the same batch must make progress: DynamoDB may leave a part of it for another call.
pub const BATCH_PATIENCE: Duration = Duration::from_secs(5);

/// The cause of the error if no call makes progress for [`BATCH_PATIENCE`].
pub const BATCH_LEFT: &str = "DynamoDB left keys unprocessed again and again";

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
        let mut pauses = Backoff::until(Instant::now() + BATCH_PATIENCE);
        loop {
            let request = KeysAndAttributes::builder().set_keys(Some(keys)).consistent_read(true);
            let request = request.set_projection_expression(projection.clone()).build().expect("the keys are set");
            let get = client.batch_get_item().request_items(table, request);
            let output = get.return_consumed_capacity(ReturnConsumedCapacity::Total).send().await;
            let output = output.map_err(|error| StoreError::of_call(doing, error))?;
            let found = output.responses.and_then(|mut tables| tables.remove(table)).unwrap_or_default();
            if !found.is_empty() {
                pauses = Backoff::until(Instant::now() + BATCH_PATIENCE);
            }
            items.extend(found);
            let left = output.unprocessed_keys.and_then(|mut tables| tables.remove(table));
            keys = left.map(|request| request.keys).unwrap_or_default();
            if keys.is_empty() {
                break;
            }
            pauses.wait_or_fail(doing, BATCH_LEFT).await?;
        }
        Ok::<_, StoreError>(items)
    };
    let chunks: Vec<_> = keys.chunks(MAX_BATCH).map(|keys| read(keys.to_vec())).collect();
    stream::iter(chunks).buffer_unordered(CONCURRENCY).try_concat().await
}
