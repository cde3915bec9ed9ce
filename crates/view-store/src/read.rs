//! Reads positions and rows, for folding events into them.

use std::collections::{BTreeMap, BTreeSet};

use daybook_decider::Json;
use daybook_event_store::StoreError;
use daybook_table::AggregateKey;

use crate::items::{Position, PositionItem, RowItem, json, primary_key, read};
use crate::keys::{POSITION, RowKey, View};
use crate::store::ViewStore;

/// A part of a row, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRow {
    /// Its contents.
    pub row: Json,
    /// The id of the write that stored it.
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
}
