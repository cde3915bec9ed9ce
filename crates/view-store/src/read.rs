//! Reads positions and rows, for folding events into them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use aws_sdk_dynamodb::types::{KeysAndAttributes, ReturnConsumedCapacity};
use daybook_decider::Json;
use daybook_event_store::StoreError;
use daybook_table::AggregateKey;
use futures_util::future::try_join_all;

use crate::items::{Item, Position, PositionItem, RowItem, json, primary_key, read};
use crate::keys::{POSITION, RowKey, View};
use crate::store::{ViewStore, pause_before_rest};

/// Maximum keys of a call.
const MAX_KEYS: usize = 100;

/// The pause before the second call for the same keys; it doubles with each further call.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// A part of a row, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRow {
    pub row: Json,
    pub write_id: String,
}

impl ViewStore {
    /// The positions of those aggregates that have one.
    pub async fn positions(
        &self,
        view: &View,
        aggregates: &BTreeSet<AggregateKey>,
    ) -> Result<BTreeMap<AggregateKey, Position>, StoreError> {
        let by_pk: BTreeMap<_, _> = aggregates.iter().map(|key| (view.position_pk(key), key)).collect();
        let keys = by_pk.keys().map(|pk| primary_key(pk.clone(), POSITION.to_owned())).collect();
        let mut positions = BTreeMap::new();
        for item in self.batch_get(keys).await? {
            let PositionItem { pk, seq_num, state, suspended, resumed_at, .. } = read(item)?;
            if let Some(&key) = by_pk.get(&pk) {
                let state = json(&pk, state)?;
                positions.insert(key.clone(), Position { seq_num, state, suspended, resumed_at });
            }
        }
        Ok(positions)
    }

    /// The parts of rows with these keys, without those that do not exist.
    pub async fn rows(&self, view: &View, keys: &BTreeSet<RowKey>) -> Result<BTreeMap<RowKey, StoredRow>, StoreError> {
        let by_key: BTreeMap<_, _> =
            keys.iter().map(|key| ((view.rows_pk(key.shard), key.key.as_str()), key)).collect();
        let keys = by_key.keys().map(|(pk, sk)| primary_key(pk.clone(), (*sk).to_owned())).collect();
        let mut rows = BTreeMap::new();
        for item in self.batch_get(keys).await? {
            let RowItem { pk, sk, row, write_id } = read(item)?;
            if let Some(&key) = by_key.get(&(pk, sk.as_str())) {
                rows.insert(key.clone(), StoredRow { row: json(&sk, row)?, write_id });
            }
        }
        Ok(rows)
    }

    /// The items with these keys that exist, in any order, strongly consistent. The keys must differ.
    pub(crate) async fn batch_get(&self, keys: Vec<Item>) -> Result<Vec<Item>, StoreError> {
        let chunks = keys.chunks(MAX_KEYS).map(|keys| self.batch_get_chunk(keys.to_vec()));
        Ok(try_join_all(chunks).await?.concat())
    }

    async fn batch_get_chunk(&self, mut keys: Vec<Item>) -> Result<Vec<Item>, StoreError> {
        const DOING: &str = "read a view";
        let mut items = Vec::with_capacity(keys.len());
        for calls in 1.. {
            let requested = KeysAndAttributes::builder().set_keys(Some(keys)).consistent_read(true).build();
            let requested = requested.expect("the keys are set");
            let get = self.client.batch_get_item().request_items(&self.table_name, requested);
            let get = get.return_consumed_capacity(ReturnConsumedCapacity::Total);
            let output = get.send().await.map_err(|error| StoreError::of_call(DOING, error))?;
            items.extend(
                output.responses.into_iter().flat_map(|mut responses| responses.remove(&self.table_name)).flatten(),
            );
            let left = output.unprocessed_keys.and_then(|mut left| left.remove(&self.table_name));
            keys = left.map(|left| left.keys).unwrap_or_default();
            if keys.is_empty() {
                break;
            }
            pause_before_rest(calls, FIRST_PAUSE, DOING).await?;
        }
        Ok(items)
    }
}
