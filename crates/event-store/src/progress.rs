//! How far an aggregate and its snapshot are, without events and without the state.

use aws_sdk_dynamodb::types::AttributeValue;
use daybook_table::{AggregateKey, attributes, keys};

use crate::error::StoreError;
use crate::load::{Item, text};
use crate::store::EventStore;

/// How far an aggregate is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AggregateProgress {
    /// The number of its last event, as the metadata says; 0 when there is none.
    pub version: u64,
    /// Its newest snapshot.
    pub snapshot: Option<SnapshotProgress>,
}

/// How far a snapshot is. Numbers that cannot be read are 0, which no snapshot has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotProgress {
    /// The last event that is folded into it.
    pub version: u64,
    /// The version of the state's meaning.
    pub state_version: u32,
}

impl EventStore {
    /// How far the aggregate and its newest snapshot are: one call, at the capacity of metadata and snapshot.
    ///
    /// # Errors
    ///
    /// See [`StoreError`].
    pub async fn progress(&self, key: &AggregateKey) -> Result<AggregateProgress, StoreError> {
        let wanted = [attributes::SK, attributes::CURRENT_SEQ_NUM, attributes::LAST_SEQ_NUM, attributes::STATE_VERSION]
            .join(", ");
        let page = self
            .client
            .query()
            .table_name(&self.settings.table_name)
            .key_condition_expression(format!("{} = :pk AND {} <= :snapshot", attributes::PK, attributes::SK))
            .expression_attribute_values(":pk", AttributeValue::S(key.pk()))
            .expression_attribute_values(":snapshot", AttributeValue::S(keys::SNAPSHOT.to_owned()))
            .projection_expression(wanted)
            .consistent_read(true)
            .send()
            .await
            .map_err(|fault| StoreError::of_call("read how far an aggregate is", fault))?;
        let mut progress = AggregateProgress::default();
        for item in page.items.unwrap_or_default() {
            let sk = text(&item, attributes::SK);
            if sk == keys::METADATA {
                progress.version = number(&item, attributes::CURRENT_SEQ_NUM);
            } else if sk == keys::SNAPSHOT {
                let state_version = u32::try_from(number(&item, attributes::STATE_VERSION)).unwrap_or_default();
                let version = number(&item, attributes::LAST_SEQ_NUM);
                progress.snapshot = Some(SnapshotProgress { version, state_version });
            }
        }
        Ok(progress)
    }
}

fn number(item: &Item, name: &str) -> u64 {
    item.get(name).and_then(|value| value.as_n().ok()?.parse().ok()).unwrap_or_default()
}
