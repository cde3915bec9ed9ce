//! What a fold goes on from.

use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use aws_sdk_dynamodb::types::AttributeValue;
use daybook_decider::{Folded, Model};
use daybook_table::{AggregateKey, attributes, keys};

use super::{Stored, decode};
use crate::error::StoreError;
use crate::load::Item;
use crate::store::EventStore;

impl EventStore {
    /// What a fold of all events goes on from: the newest snapshot, if it is good. If it is not, the newest kept one that
    /// is: while two releases run side by side, each finds its own.
    pub(crate) async fn base(&self, model: &dyn Model, key: &AggregateKey) -> Result<Folded, StoreError> {
        if model.full_history() {
            return Ok(model.before_first_event());
        }
        match self.newest_snapshot(key).await? {
            None => Ok(model.before_first_event()),
            Some(item) => match usable(model, key, item) {
                Some(folded) => Ok(folded),
                None => {
                    Ok(self.kept_at(model, key, keys::MAX_SEQ_NUM).await?.unwrap_or_else(|| model.before_first_event()))
                }
            },
        }
    }

    /// What a fold up to event `version` goes on from: the newest good snapshot that is not beyond it.
    pub(crate) async fn base_at(
        &self,
        model: &dyn Model,
        key: &AggregateKey,
        version: u64,
    ) -> Result<Folded, StoreError> {
        if model.full_history() || version == 0 {
            return Ok(model.before_first_event());
        }
        let mut nearest = self.kept_at(model, key, version).await?.unwrap_or_else(|| model.before_first_event());
        // Where snapshots are kept, none is nearer than this. Elsewhere the newest may be.
        if version - nearest.version() >= self.settings.snapshot_every {
            let newest = self.newest_snapshot(key).await?.and_then(|item| usable(model, key, item));
            let nearer = newest.filter(|folded| (nearest.version()..=version).contains(&folded.version()));
            nearest = nearer.unwrap_or(nearest);
        }
        // No event is read after this one, so nothing else would tell that it is not there.
        if nearest.version() == version && self.is_ahead(key, version).await? {
            return Ok(model.before_first_event());
        }
        Ok(nearest)
    }

    async fn newest_snapshot(&self, key: &AggregateKey) -> Result<Option<Item>, StoreError> {
        let answer = self
            .row(key, keys::SNAPSHOT.to_owned())
            .send()
            .await
            .map_err(|fault| StoreError::of_call("read a snapshot", fault))?;
        Ok(answer.item)
    }

    /// The newest good one of the kept snapshots up to event `version`.
    async fn kept_at(&self, model: &dyn Model, key: &AggregateKey, version: u64) -> Result<Option<Folded>, StoreError> {
        let fault = |fault| StoreError::of_call("read a kept snapshot", fault);
        let newest = self.kept_up_to(key, version).limit(1).send().await.map_err(fault)?;
        let Some(item) = newest.items.unwrap_or_default().pop() else { return Ok(None) };
        if let Some(folded) = usable(model, key, item) {
            return Ok(Some(folded));
        }
        // What is wrong with the newest is mostly that another release took it, and then several in a row. Pages of 1 MB
        // pass by these; the first that is good ends it.
        let own = AttributeValue::N(model.state_version().to_string());
        let mut others = self
            .kept_up_to(key, version)
            .filter_expression(format!("{} = :own", attributes::STATE_VERSION))
            .expression_attribute_values(":own", own)
            .into_paginator()
            .items()
            .send();
        while let Some(item) = others.next().await {
            if let Some(folded) = usable(model, key, item.map_err(fault)?) {
                return Ok(Some(folded));
            }
        }
        Ok(None)
    }

    /// The kept snapshots up to event `version`, the newest first.
    pub(super) fn kept_up_to(&self, key: &AggregateKey, version: u64) -> QueryFluentBuilder {
        self.rows_between(key, keys::kept_snapshot_sk(0), keys::kept_snapshot_sk(version)).scan_index_forward(false)
    }
}

/// The state that a snapshot holds, unless it is of another state version or cannot be read.
fn usable(model: &dyn Model, key: &AggregateKey, item: Item) -> Option<Folded> {
    match decode(model, item) {
        Stored::Good(folded) => Some(folded),
        Stored::OfAnotherVersion { state_version, version } => {
            tracing::warn!(aggregate = %key, version, state_version, "ignoring a snapshot of another state version");
            None
        }
        Stored::Unreadable(fault) => {
            tracing::warn!(aggregate = %key, fault, "ignoring a snapshot that cannot be read");
            None
        }
    }
}
