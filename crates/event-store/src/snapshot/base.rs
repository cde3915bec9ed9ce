//! The state that a fold starts from.

use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use aws_sdk_dynamodb::types::AttributeValue;
use daybook_decider::Folded;
use daybook_table::{attributes, keys};

use super::codec::StoredSnapshot;
use crate::error::StoreError;
use crate::event_stream::EventStream;
use crate::item::Item;

impl EventStream<'_> {
    /// The state that a fold of all events starts from: the latest snapshot, if it is usable, or else the latest kept
    /// snapshot that is usable. While two releases run in parallel, each one finds its own.
    pub(crate) async fn base(&self) -> Result<Folded, StoreError> {
        let before_first = self.model.before_first_event();
        let latest = self.store.row("read a snapshot", self.key, keys::SNAPSHOT.to_owned()).await?;
        let Some(row) = latest else { return Ok(before_first) };
        match self.usable(row).await? {
            Some(folded) => Ok(folded),
            None => Ok(self.usable_kept_snapshot().await?.unwrap_or(before_first)),
        }
    }

    /// The state that a fold up to event `version` starts from: that of the snapshot, unless it is beyond the event.
    pub(crate) async fn base_at(&self, version: u64) -> Result<Folded, StoreError> {
        if !self.model.full_history() && version > 0 {
            let base = self.base().await?;
            // No event after a snapshot of that version is read, so nothing else would show that its event does not exist.
            if base.version() < version || (base.version() == version && !self.is_ahead(version).await?) {
                return Ok(base);
            }
        }
        Ok(self.model.before_first_event())
    }

    /// The latest usable kept snapshot. Usually another release took the others.
    async fn usable_kept_snapshot(&self) -> Result<Option<Folded>, StoreError> {
        let own = AttributeValue::N(self.model.state_version().to_string());
        let kept = self.kept_snapshots().filter_expression(format!("{} = :own", attributes::STATE_VERSION));
        let mut kept = kept.expression_attribute_values(":own", own).into_paginator().items().send();
        while let Some(row) = kept.next().await {
            let row = row.map_err(|error| StoreError::of_call("read a kept snapshot", error))?;
            if let Some(folded) = self.usable(row).await? {
                return Ok(Some(folded));
            }
        }
        Ok(None)
    }

    /// The kept snapshots, the latest first.
    pub(crate) fn kept_snapshots(&self) -> QueryFluentBuilder {
        let (first, last) = (keys::kept_snapshot_sk(0), keys::kept_snapshot_sk(keys::MAX_SEQ_NUM));
        self.store.rows_between(self.key, first, last).scan_index_forward(false)
    }

    /// The state that a snapshot holds, unless it is of another state version or cannot be read.
    async fn usable(&self, row: Item) -> Result<Option<Folded>, StoreError> {
        let aggregate = self.key;
        Ok(match self.decode_snapshot(row).await? {
            StoredSnapshot::Usable(folded) => Some(folded),
            StoredSnapshot::OfOtherStateVersion { state_version, version } => {
                tracing::warn!(%aggregate, version, state_version, "ignoring a snapshot of another state version");
                None
            }
            StoredSnapshot::Unreadable(error) => {
                tracing::warn!(%aggregate, error, "ignoring a snapshot that cannot be read");
                None
            }
        })
    }
}
