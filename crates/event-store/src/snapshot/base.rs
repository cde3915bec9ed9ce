//! What a fold goes on from.

use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use aws_sdk_dynamodb::types::AttributeValue;
use daybook_decider::Folded;
use daybook_table::{attributes, keys};

use super::codec::StoredSnapshot;
use crate::error::StoreError;
use crate::event_stream::EventStream;
use crate::item::Item;

impl EventStream<'_> {
    /// What a fold of all events goes on from: the newest snapshot, if it is usable. If it is not, the newest kept one that
    /// is: while two releases run side by side, each finds its own.
    pub(crate) async fn base(&self) -> Result<Folded, StoreError> {
        let before_first = self.model.before_first_event();
        if self.model.full_history() {
            return Ok(before_first);
        }
        let Some(row) = self.newest_snapshot().await? else { return Ok(before_first) };
        match self.usable(row) {
            Some(folded) => Ok(folded),
            None => Ok(self.kept_at(keys::MAX_SEQ_NUM).await?.unwrap_or(before_first)),
        }
    }

    /// What a fold up to event `version` goes on from: the newest usable snapshot that is not beyond it.
    pub(crate) async fn base_at(&self, version: u64) -> Result<Folded, StoreError> {
        let before_first = self.model.before_first_event();
        if self.model.full_history() || version == 0 {
            return Ok(before_first);
        }
        let mut nearest = self.kept_at(version).await?.unwrap_or(before_first);
        // Where snapshots are kept, none is nearer than this. Elsewhere the newest may be.
        if version - nearest.version() >= self.store.settings.snapshot_every {
            let newest = self.newest_snapshot().await?.and_then(|row| self.usable(row));
            let nearer = newest.filter(|folded| (nearest.version()..=version).contains(&folded.version()));
            nearest = nearer.unwrap_or(nearest);
        }
        // No event is read after this one, so nothing else would show that it is not there.
        if nearest.version() == version && self.is_ahead(version).await? {
            return Ok(self.model.before_first_event());
        }
        Ok(nearest)
    }

    async fn newest_snapshot(&self) -> Result<Option<Item>, StoreError> {
        let output = self.store.row(self.key, keys::SNAPSHOT.to_owned()).send().await;
        Ok(output.map_err(|error| StoreError::of_call("read a snapshot", error))?.item)
    }

    /// The newest usable one of the kept snapshots up to event `version`.
    async fn kept_at(&self, version: u64) -> Result<Option<Folded>, StoreError> {
        let of_call = |error| StoreError::of_call("read a kept snapshot", error);
        let newest = self.kept_up_to(version).limit(1).send().await.map_err(of_call)?;
        let Some(row) = newest.items.unwrap_or_default().pop() else { return Ok(None) };
        if let Some(folded) = self.usable(row) {
            return Ok(Some(folded));
        }
        // What is wrong with the newest is mostly that another release took it, and then several in a row. Pages of 1 MB
        // pass by these; the first that is usable ends it.
        let own = AttributeValue::N(self.model.state_version().to_string());
        let mut others = self
            .kept_up_to(version)
            .filter_expression(format!("{} = :own", attributes::STATE_VERSION))
            .expression_attribute_values(":own", own)
            .into_paginator()
            .items()
            .send();
        while let Some(row) = others.next().await {
            if let Some(folded) = self.usable(row.map_err(of_call)?) {
                return Ok(Some(folded));
            }
        }
        Ok(None)
    }

    /// The kept snapshots up to event `version`, the newest first.
    pub(crate) fn kept_up_to(&self, version: u64) -> QueryFluentBuilder {
        let (first, last) = (keys::kept_snapshot_sk(0), keys::kept_snapshot_sk(version));
        self.store.rows_between(self.key, first, last).scan_index_forward(false)
    }

    /// The state that a snapshot holds, unless it is of another state version or cannot be read.
    fn usable(&self, row: Item) -> Option<Folded> {
        let aggregate = self.key;
        match self.decode_snapshot(row) {
            StoredSnapshot::Usable(folded) => Some(folded),
            StoredSnapshot::OfOtherStateVersion { state_version, version } => {
                tracing::warn!(%aggregate, version, state_version, "ignoring a snapshot of another state version");
                None
            }
            StoredSnapshot::Unreadable(error) => {
                tracing::warn!(%aggregate, error, "ignoring a snapshot that cannot be read");
                None
            }
        }
    }
}
