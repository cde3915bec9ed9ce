//! The state of an aggregate, now or as it was.

use std::sync::Arc;

use aws_sdk_dynamodb::types::AttributeValue;
use decider::{Folded, Json, Model, RecordedEvent};
use futures_util::future::try_join;
use table::{AggregateKey, EventItem, attributes, keys};

use crate::error::{Cause, StoreError};
use crate::store::EventStore;

/// An aggregate at some version, with its state as JSON. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// What decisions and folds go on from.
    pub folded: Folded,
    /// The state.
    pub state: Arc<Json>,
}

impl Loaded {
    /// How many events it has; 0 when it does not exist.
    pub fn version(&self) -> u64 {
        self.folded.version()
    }
}

impl EventStore {
    /// The aggregate as this process last saw it. No call; others may have written since, so only an append, whose
    /// condition finds out, may be built on it.
    pub fn recall(&self, key: &AggregateKey) -> Option<Loaded> {
        self.cache.get(key)
    }

    /// The aggregate with every event that was committed before the call.
    ///
    /// One round trip: events after the cached version where there is one, else the snapshot and the newest events side
    /// by side. More only where the stream goes further back than both.
    ///
    /// # Errors
    ///
    /// See [`StoreError`].
    pub async fn load(&self, model: &dyn Model, key: &AggregateKey) -> Result<Loaded, StoreError> {
        let folded = match self.cache.get(key) {
            Some(known) => {
                let version = known.version();
                let folded = self.fold_on(model, key, known.folded, keys::MAX_SEQ_NUM).await?;
                if folded.version() == version {
                    return Ok(Loaded { folded, state: known.state });
                }
                folded
            }
            None => self.load_cold(model, key).await?,
        };
        self.remember(model, key, folded)
    }

    /// The aggregate folded from its first event, whatever cache and snapshots hold.
    ///
    /// # Errors
    ///
    /// See [`StoreError`].
    pub async fn rebuild(&self, model: &dyn Model, key: &AggregateKey) -> Result<Loaded, StoreError> {
        let folded = self.fold_on(model, key, model.before_first_event(), keys::MAX_SEQ_NUM).await?;
        self.remember(model, key, folded)
    }

    /// The aggregate as it was after event `version`, or as it is when there are fewer events.
    ///
    /// # Errors
    ///
    /// See [`StoreError`].
    pub async fn load_at(&self, model: &dyn Model, key: &AggregateKey, version: u64) -> Result<Loaded, StoreError> {
        let base = self.base_at(model, key, version).await?;
        let folded = self.fold_on(model, key, base, version).await?;
        loaded(model, key, folded)
    }

    /// The aggregate as it was after event `version`, folded from its first event.
    ///
    /// # Errors
    ///
    /// See [`StoreError`].
    pub async fn rebuild_at(&self, model: &dyn Model, key: &AggregateKey, version: u64) -> Result<Loaded, StoreError> {
        let folded = self.fold_on(model, key, model.before_first_event(), version).await?;
        loaded(model, key, folded)
    }

    /// Keeps the state for the next command.
    pub(crate) fn remember(&self, model: &dyn Model, key: &AggregateKey, folded: Folded) -> Result<Loaded, StoreError> {
        let loaded = loaded(model, key, folded)?;
        if loaded.version() > 0 {
            self.cache.put(key, &loaded);
        }
        Ok(loaded)
    }

    async fn load_cold(&self, model: &dyn Model, key: &AggregateKey) -> Result<Folded, StoreError> {
        let (base, newest) = try_join(self.base(model, key), self.newest_events(key)).await?;
        let first = newest.first().map_or(0, |event| event.seq_num);
        // Events between the snapshot and the page of newest ones: none when a snapshot is taken every page.
        let base = if first > base.version() + 1 { self.fold_on(model, key, base, first - 1).await? } else { base };
        let seen = newest.iter().take_while(|event| event.seq_num <= base.version()).count();
        fold(model, key, base, &newest[seen..])
    }

    /// Folds the stored events after `onto` up to and including `last`, page by page.
    async fn fold_on(
        &self,
        model: &dyn Model,
        key: &AggregateKey,
        onto: Folded,
        last: u64,
    ) -> Result<Folded, StoreError> {
        let mut folded = onto;
        if folded.version() >= last {
            return Ok(folded);
        }
        let mut pages = self
            .client
            .query()
            .table_name(&self.settings.table_name)
            .key_condition_expression(format!(
                "{} = :pk AND {} BETWEEN :first AND :last",
                attributes::PK,
                attributes::SK
            ))
            .expression_attribute_values(":pk", AttributeValue::S(key.pk()))
            .expression_attribute_values(":first", AttributeValue::S(keys::event_sk(folded.version() + 1)))
            .expression_attribute_values(":last", AttributeValue::S(keys::event_sk(last)))
            .consistent_read(true)
            .into_paginator()
            .send();
        while let Some(page) = pages.next().await {
            let page = page.map_err(|fault| StoreError::of_call("read an aggregate's events", fault))?;
            folded = fold(model, key, folded, &events(page.items.unwrap_or_default())?)?;
        }
        Ok(folded)
    }

    /// The newest events in order, as many as a snapshot may be behind; fewer when they are large.
    async fn newest_events(&self, key: &AggregateKey) -> Result<Vec<RecordedEvent>, StoreError> {
        let page = self
            .client
            .query()
            .table_name(&self.settings.table_name)
            .key_condition_expression(format!("{} = :pk AND begins_with({}, :events)", attributes::PK, attributes::SK))
            .expression_attribute_values(":pk", AttributeValue::S(key.pk()))
            .expression_attribute_values(":events", AttributeValue::S(keys::EVENT_PREFIX.to_owned()))
            .scan_index_forward(false)
            .limit(i32::try_from(self.settings.snapshot_every).unwrap_or(i32::MAX))
            .consistent_read(true)
            .send()
            .await
            .map_err(|fault| StoreError::of_call("read an aggregate's newest events", fault))?;
        let mut newest = events(page.items.unwrap_or_default())?;
        newest.reverse();
        Ok(newest)
    }
}

fn loaded(model: &dyn Model, key: &AggregateKey, folded: Folded) -> Result<Loaded, StoreError> {
    let state = model
        .state(&folded)
        .map_err(|fault| StoreError::Corrupt { item: format!("the state of {key}"), source: fault.into() })?;
    Ok(Loaded { folded, state: Arc::new(state) })
}

fn fold(model: &dyn Model, key: &AggregateKey, onto: Folded, events: &[RecordedEvent]) -> Result<Folded, StoreError> {
    model.fold(onto, events).map_err(|event| StoreError::unreadable(key, event))
}

/// The events of a page.
pub(crate) fn events(items: Vec<Item>) -> Result<Vec<RecordedEvent>, StoreError> {
    items.into_iter().map(|item| Ok(event_item(item)?.into_event()?)).collect()
}

/// An item as the SDK has it.
pub(crate) type Item = std::collections::HashMap<String, AttributeValue>;

/// The item as an event.
pub(crate) fn event_item(item: Item) -> Result<EventItem, StoreError> {
    let name = |attribute| item.get(attribute).and_then(|value| value.as_s().ok()).cloned().unwrap_or_default();
    let keys = format!("item {} {}", name(attributes::PK), name(attributes::SK));
    serde_dynamo::from_item(item).map_err(|fault| StoreError::Corrupt { item: keys, source: Cause::from(fault) })
}
