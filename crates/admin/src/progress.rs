//! The versions of aggregates and of their snapshots, without events and without the state; and how far processes are.

use std::collections::{BTreeMap, BTreeSet};

use daybook_event_store::StoreError;
use daybook_event_store::internal::{number, text};
use daybook_table::{AggregateKey, PositionItem, attributes, keys};
use jiff::Timestamp;
use serde_dynamo::from_item;

use crate::handle::Admin;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AggregateProgress {
    /// The number of its last event according to the metadata; 0 when there is none.
    pub version: u64,
    pub snapshot: Option<SnapshotProgress>,
}

/// The versions of a snapshot. A number that cannot be read is 0, which no snapshot has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotProgress {
    pub version: u64,
    pub state_version: u32,
}

/// How far the processes of a type have handled the events of an aggregate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FollowProgress {
    pub version: u64,
    /// The time of its last event, if it can be read.
    pub changed_at: Option<Timestamp>,
    /// Of event 0 without a row, or if that cannot be read.
    pub position: PositionItem,
}

impl FollowProgress {
    /// The number of the last event that was handled, by all but those that are suspended. `None` if all are.
    pub fn handled(&self) -> Option<u64> {
        self.position.next().map(|(_, handled)| handled)
    }
}

impl Admin<'_> {
    /// The number of the last event of each of these aggregates that has metadata, strongly consistent: one call for a hundred
    /// aggregates, at the capacity of the metadata.
    pub async fn versions(
        &self,
        aggregates: &BTreeSet<AggregateKey>,
    ) -> Result<BTreeMap<AggregateKey, u64>, StoreError> {
        let wanted = [attributes::PK, attributes::SK, attributes::CURRENT_SEQ_NUM].join(", ");
        let rows = aggregates.iter().map(|key| (keys::pk(key), keys::METADATA.to_owned())).collect();
        let found = self.items("read the versions of aggregates", rows, Some(wanted)).await?;
        let version = |key: &AggregateKey| {
            let item = found.get(&(keys::pk(key), keys::METADATA.to_owned()))?;
            Some((key.clone(), number(item, attributes::CURRENT_SEQ_NUM)?))
        };
        Ok(aggregates.iter().filter_map(version).collect())
    }

    /// How far the processes of a type have handled the events of each of these aggregates that has metadata, strongly
    /// consistent: two calls for a hundred aggregates, at the capacity of the metadata and the positions.
    pub async fn followed(
        &self,
        process_type: &str,
        aggregates: &BTreeSet<AggregateKey>,
    ) -> Result<BTreeMap<AggregateKey, FollowProgress>, StoreError> {
        let position = keys::position_sk(process_type);
        let wanted = [attributes::PK, attributes::SK, attributes::CURRENT_SEQ_NUM, attributes::UPDATED_AT];
        let wanted = [wanted.as_slice(), &[attributes::SEQ_NUM, attributes::SUSPENDED]].concat().join(", ");
        let of = |key: &AggregateKey| [keys::METADATA, &position].map(|sk| (keys::pk(key), sk.to_owned()));
        let rows = aggregates.iter().flat_map(of).collect();
        let found = self.items("read positions", rows, Some(wanted)).await?;
        let progress = |key: &AggregateKey| {
            let [metadata, position] = of(key).map(|row| found.get(&row));
            let metadata = metadata?;
            let position = position.and_then(|row| from_item(row.clone()).ok());
            let progress = FollowProgress {
                version: number(metadata, attributes::CURRENT_SEQ_NUM)?,
                changed_at: text(metadata, attributes::UPDATED_AT).parse().ok(),
                position: position.unwrap_or_else(|| PositionItem::new(key, process_type, 0)),
            };
            Some((key.clone(), progress))
        };
        Ok(aggregates.iter().filter_map(progress).collect())
    }

    /// Reads the versions of the aggregate and of its latest snapshot: one call, at the capacity of metadata and
    /// snapshot.
    pub async fn progress(&self, key: &AggregateKey) -> Result<AggregateProgress, StoreError> {
        let wanted = [attributes::SK, attributes::CURRENT_SEQ_NUM, attributes::LAST_SEQ_NUM, attributes::STATE_VERSION]
            .join(", ");
        let rows = self.store.rows_between(key, keys::METADATA.to_owned(), keys::SNAPSHOT.to_owned());
        let output = rows.projection_expression(wanted).send().await;
        let output = output.map_err(|error| StoreError::of_call("read the progress of an aggregate", error))?;
        let mut progress = AggregateProgress::default();
        for item in output.items.unwrap_or_default() {
            let sk = text(&item, attributes::SK);
            if sk == keys::METADATA {
                progress.version = number(&item, attributes::CURRENT_SEQ_NUM).unwrap_or_default();
            } else if sk == keys::SNAPSHOT {
                let version = number(&item, attributes::LAST_SEQ_NUM).unwrap_or_default();
                let state_version = number(&item, attributes::STATE_VERSION).unwrap_or_default();
                progress.snapshot = Some(SnapshotProgress { version, state_version });
            }
        }
        Ok(progress)
    }
}
