//! The state of an aggregate, now or as it was.

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use daybook_decider::{Folded, Json, Model, RecordedEvent};
use daybook_table::{AggregateKey, EventItem, attributes, keys};
use futures_util::future::try_join;
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::error::{Cause, StoreError};
use crate::store::EventStore;

const READING: &str = "read an aggregate's events";

/// How long rows that a transaction is still writing are looked for. It commits within milliseconds.
const TORN_READ: Duration = Duration::from_secs(1);

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

/// What a load is to return, and what it may go on from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadOptions {
    /// What it may go on from.
    pub policy: LoadPolicy,
    /// How many events there are known to be. Fewer are an error.
    pub at_least: u64,
    /// The version that is wanted: the aggregate after that event, or as it is when there are fewer events. Without it,
    /// after every event that was committed before the call.
    pub at: Option<u64>,
}

impl LoadOptions {
    /// The aggregate as it is, folded from its first event.
    pub const REBUILD: Self = Self { policy: LoadPolicy::Rebuild, at_least: 0, at: None };
}

/// What a fold may go on from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoadPolicy {
    /// The cached state or a snapshot, where there is one.
    #[default]
    Incremental,
    /// Nothing: every event is folded, whatever cache and snapshots hold.
    Rebuild,
}

impl EventStore {
    /// The aggregate as this process last saw it. No call; others may have written since, so only an append, whose
    /// condition finds out, may be built on it.
    pub fn cached(&self, key: &AggregateKey) -> Option<Loaded> {
        self.cache.get(key)
    }

    /// The aggregate with every event that was committed before the call.
    ///
    /// One round trip: events after the cached version where there is one, else the snapshot and the newest events side
    /// by side. More only where the stream goes further back than both, or has left the cached version far behind.
    ///
    /// # Errors
    ///
    /// See [`StoreError`].
    pub async fn load(&self, model: &dyn Model, key: &AggregateKey) -> Result<Loaded, StoreError> {
        self.load_with(model, key, LoadOptions::default()).await
    }

    /// The aggregate at some version, or folded without cache and snapshots.
    ///
    /// # Errors
    ///
    /// See [`StoreError`].
    pub async fn load_with(
        &self,
        model: &dyn Model,
        key: &AggregateKey,
        options: LoadOptions,
    ) -> Result<Loaded, StoreError> {
        let LoadOptions { policy, at_least, at } = options;
        let last = at.unwrap_or(keys::MAX_SEQ_NUM);
        let base = match (policy, at) {
            (LoadPolicy::Incremental, None) => return self.load_current(model, key, at_least).await,
            (LoadPolicy::Incremental, Some(version)) => self.base_at(model, key, version).await?,
            (LoadPolicy::Rebuild, _) => model.before_first_event(),
        };
        let folded = self.fold_on(model, key, base, at_least, last).await?;
        if at.is_some() { loaded(model, key, folded) } else { self.remember(model, key, folded) }
    }

    /// From the cached state where there is one.
    async fn load_current(&self, model: &dyn Model, key: &AggregateKey, at_least: u64) -> Result<Loaded, StoreError> {
        let known = self.cache.get(key);
        let folded = match &known {
            Some(known) => self.catch_up(model, key, known.folded.clone()).await?,
            None => self.load_cold(model, key, model.before_first_event()).await?,
        };
        let folded = self.fold_on(model, key, folded, at_least, at_least).await?;
        match known {
            Some(known) if known.version() == folded.version() => Ok(known),
            _ => self.remember(model, key, folded),
        }
    }

    /// Keeps the state for the next command.
    pub(crate) fn remember(&self, model: &dyn Model, key: &AggregateKey, folded: Folded) -> Result<Loaded, StoreError> {
        let loaded = loaded(model, key, folded)?;
        if loaded.version() > 0 {
            self.cache.put(key, &loaded);
        }
        Ok(loaded)
    }

    /// Goes on from the cache, unless that is further behind than a snapshot would be: by more than twice what lies between
    /// two of them, so that whoever takes them does so in one call, or by more than a page of 1 MB.
    async fn catch_up(&self, model: &dyn Model, key: &AggregateKey, known: Folded) -> Result<Folded, StoreError> {
        let seen = known.version();
        let next = self.rows_between(key, keys::event_sk(seen + 1), keys::event_sk(keys::MAX_SEQ_NUM));
        let page = next
            .limit(self.page().saturating_mul(2))
            .send()
            .await
            .map_err(|fault| StoreError::of_call(READING, fault))?;
        let stretch = Stretch::read(page.items.unwrap_or_default())?;
        let folded = fold(model, key, known, stretch.following(seen))?;
        if page.last_evaluated_key.is_some() {
            return self.load_cold(model, key, folded).await;
        }
        if folded.version() >= stretch.end {
            return Ok(folded);
        }
        self.fold_on(model, key, folded, stretch.end, keys::MAX_SEQ_NUM).await
    }

    /// From the snapshot, or from what is known where that is newer.
    async fn load_cold(&self, model: &dyn Model, key: &AggregateKey, known: Folded) -> Result<Folded, StoreError> {
        let (mut base, mut newest) = try_join(self.base(model, key), self.newest_events(key)).await?;
        if base.version() > newest.end {
            // Either its events were appended between the two reads, or it is a snapshot of events that are not there.
            newest = self.newest_events(key).await?;
            if base.version() > newest.end {
                tracing::warn!(aggregate = %key, version = base.version(), "ignoring a snapshot that is ahead of the events");
                base = model.before_first_event();
            }
        }
        if known.version() > base.version() {
            base = known;
        }
        let first = newest.events.first().map_or(0, |event| event.seq_num);
        // Events between the snapshot and the page of newest ones: none when a snapshot is taken every page.
        let base = if first > base.version() + 1 {
            self.fold_on(model, key, base, newest.end, first - 1).await?
        } else {
            base
        };
        let seen = base.version();
        let folded = fold(model, key, base, newest.following(seen))?;
        if folded.version() >= newest.end {
            return Ok(folded);
        }
        self.fold_on(model, key, folded, newest.end, keys::MAX_SEQ_NUM).await
    }

    /// Folds the stored events after `onto` up to and including `last`, page by page. The stream is known to go to event
    /// `end` at least.
    ///
    /// A query beside a transaction may see some of its rows and not others. What is missing is there a moment later, so
    /// it is looked for again; what stays missing is an error.
    pub(crate) async fn fold_on(
        &self,
        model: &dyn Model,
        key: &AggregateKey,
        onto: Folded,
        mut end: u64,
        last: u64,
    ) -> Result<Folded, StoreError> {
        let mut folded = onto;
        let mut looks = None;
        while folded.version() < last {
            let next = self.rows_between(key, keys::event_sk(folded.version() + 1), keys::event_sk(last));
            let mut pages = next.into_paginator().send();
            while let Some(page) = pages.next().await {
                let page = page.map_err(|fault| StoreError::of_call(READING, fault))?;
                let stretch = Stretch::read(page.items.unwrap_or_default())?;
                end = end.max(stretch.end);
                let seen = folded.version();
                folded = fold(model, key, folded, stretch.following(seen))?;
                if folded.version() < stretch.events.last().map_or(0, |event| event.seq_num) {
                    break;
                }
            }
            if folded.version() >= end.min(last) {
                break;
            }
            let looks = looks.get_or_insert_with(|| Backoff::until(Instant::now() + TORN_READ));
            if !looks.wait().await {
                return Err(torn(key, folded.version(), end));
            }
        }
        Ok(folded)
    }

    /// The newest events in order, as many as a snapshot may be behind; fewer when they are large.
    async fn newest_events(&self, key: &AggregateKey) -> Result<Stretch, StoreError> {
        let page = self
            .rows_between(key, keys::event_sk(1), keys::event_sk(keys::MAX_SEQ_NUM))
            .scan_index_forward(false)
            .limit(self.page())
            .send()
            .await
            .map_err(|fault| StoreError::of_call("read an aggregate's newest events", fault))?;
        let mut items = page.items.unwrap_or_default();
        items.reverse();
        Stretch::read(items)
    }

    /// As many events as a snapshot may be behind.
    fn page(&self) -> i32 {
        i32::try_from(self.settings.snapshot_every).unwrap_or(i32::MAX)
    }
}

/// Events as a query saw them, in order, and the event that the stream goes to at least.
struct Stretch {
    events: Vec<RecordedEvent>,
    end: u64,
}

impl Stretch {
    fn read(items: Vec<Item>) -> Result<Self, StoreError> {
        let mut end = 0;
        let mut events = Vec::with_capacity(items.len());
        for item in items {
            let item = event_item(item)?;
            end = end.max(item.append_end.unwrap_or(item.seq_num));
            events.push(item.into_event()?);
        }
        Ok(Self { events, end })
    }

    /// Those that follow on `version` and on each other.
    fn following(&self, version: u64) -> &[RecordedEvent] {
        let after = &self.events[self.events.partition_point(|event| event.seq_num <= version)..];
        &after[..(version + 1..).zip(after).take_while(|(next, event)| event.seq_num == *next).count()]
    }
}

fn torn(key: &AggregateKey, version: u64, end: u64) -> StoreError {
    let source = format!("event {} is missing, the stream goes to {end}", version + 1).into();
    StoreError::Corrupt { item: key.to_string(), source }
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

/// An item as the SDK has it.
pub(crate) type Item = std::collections::HashMap<String, AttributeValue>;

/// The text of an attribute; empty when it is none.
pub(crate) fn text<'a>(item: &'a Item, name: &str) -> &'a str {
    item.get(name).and_then(|value| value.as_s().ok()).map(String::as_str).unwrap_or_default()
}

/// The item as an event.
pub(crate) fn event_item(item: Item) -> Result<EventItem, StoreError> {
    let keys = format!("item {} {}", text(&item, attributes::PK), text(&item, attributes::SK));
    serde_dynamo::from_item(item).map_err(|fault| StoreError::Corrupt { item: keys, source: Cause::from(fault) })
}
