//! The versions of an aggregate and of its snapshot, without events and without the state.

use daybook_table::{AggregateKey, attributes, keys};

use super::handle::Admin;
use crate::error::StoreError;
use crate::item::{number, text};

/// The version of an aggregate and the progress of its snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AggregateProgress {
    /// The number of its last event according to the metadata; 0 when there is none.
    pub version: u64,
    /// Its latest snapshot.
    pub snapshot: Option<SnapshotProgress>,
}

/// The versions of a snapshot. A number that cannot be read is 0, which no snapshot has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotProgress {
    /// The last event that is folded into it.
    pub version: u64,
    /// The aggregate's `STATE_VERSION` when it was taken.
    pub state_version: u32,
}

impl Admin<'_> {
    /// Reads the versions of the aggregate and of its latest snapshot: one call, at the capacity of metadata and
    /// snapshot.
    ///
    /// # Errors
    ///
    /// See [`StoreError`].
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
                progress.snapshot = Some(SnapshotProgress {
                    version: number(&item, attributes::LAST_SEQ_NUM).unwrap_or_default(),
                    state_version: number(&item, attributes::STATE_VERSION).unwrap_or_default(),
                });
            }
        }
        Ok(progress)
    }
}
