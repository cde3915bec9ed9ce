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
        let Some(row) = self.latest_snapshot().await? else { return Ok(before_first) };
        match self.usable(row).await? {
            Some(folded) => Ok(folded),
            None => Ok(self.usable_kept_snapshot(keys::MAX_SEQ_NUM).await?.unwrap_or(before_first)),
        }
    }

    /// The state that a fold up to event `version` starts from: the latest usable snapshot that is not beyond it.
    pub(crate) async fn base_at(&self, version: u64) -> Result<Folded, StoreError> {
        let before_first = self.model.before_first_event();
        if self.model.full_history() || version == 0 {
            return Ok(before_first);
        }
        let mut nearest = self.usable_kept_snapshot(version).await?.unwrap_or(before_first);
        // If older snapshots are kept, no snapshot is nearer than this one. Otherwise the latest one may be.
        if version - nearest.version() >= self.store.settings.snapshot_every {
            let latest = match self.latest_snapshot().await? {
                Some(row) => self.usable(row).await?,
                None => None,
            };
            let nearer = latest.filter(|folded| (nearest.version()..=version).contains(&folded.version()));
            nearest = nearer.unwrap_or(nearest);
        }
        // No event after this snapshot is read, so nothing else would show that its event does not exist.
        if nearest.version() == version && self.is_ahead(version).await? {
            return Ok(self.model.before_first_event());
        }
        Ok(nearest)
    }

    async fn latest_snapshot(&self) -> Result<Option<Item>, StoreError> {
        let output = self.store.row(self.key, keys::SNAPSHOT.to_owned()).send().await;
        Ok(output.map_err(|error| StoreError::of_call("read a snapshot", error))?.item)
    }

    /// The latest usable kept snapshot up to event `version`.
    async fn usable_kept_snapshot(&self, version: u64) -> Result<Option<Folded>, StoreError> {
        let of_call = |error| StoreError::of_call("read a kept snapshot", error);
        let latest = self.kept_snapshots(version).limit(1).send().await.map_err(of_call)?;
        let Some(row) = latest.items.unwrap_or_default().pop() else { return Ok(None) };
        if let Some(folded) = self.usable(row).await? {
            return Ok(Some(folded));
        }
        // If the latest kept snapshot is unusable, another release usually took it, and several others before it. Pages
        // of 1 MB skip these; the search ends at the first usable one.
        let own = AttributeValue::N(self.model.state_version().to_string());
        let mut others = self
            .kept_snapshots(version)
            .filter_expression(format!("{} = :own", attributes::STATE_VERSION))
            .expression_attribute_values(":own", own)
            .into_paginator()
            .items()
            .send();
        while let Some(row) = others.next().await {
            if let Some(folded) = self.usable(row.map_err(of_call)?).await? {
                return Ok(Some(folded));
            }
        }
        Ok(None)
    }

    /// The kept snapshots up to event `version`, the latest first.
    pub(crate) fn kept_snapshots(&self, version: u64) -> QueryFluentBuilder {
        let (first, last) = (keys::kept_snapshot_sk(0), keys::kept_snapshot_sk(version));
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
