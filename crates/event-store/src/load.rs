//! The state of an aggregate, now or at an earlier version, and the fold of its stored events, page by page.

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use daybook_decider::{AggregatePanic, Folded, Model, RecordedEvent, StateError, personal};
use daybook_table::{AggregateKey, keys};
use futures_util::future::try_join;
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::cache::Loaded;
use crate::error::StoreError;
use crate::item::{Item, event_item};
use crate::store::{EventStore, EventStream};

/// Maximum events that a load reads in parallel with the snapshot, when it does not know yet how many follow the
/// snapshot. The number is small because events before the snapshot are read in vain: four events of up to 2 KB take
/// two read units.
const FIRST_PAGE: i32 = 4;

/// The time for which rows of an unfinished transaction are read again. A transaction commits within milliseconds;
/// rows that are missing for longer are damage.
pub(crate) const COMMIT_TIME: Duration = Duration::from_secs(1);

/// The version that a load returns, and the state that it may start from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadOptions {
    pub policy: LoadPolicy,
    /// The number of events that are known to exist. Finding fewer is an error.
    pub at_least: u64,
    /// The version to return: the aggregate after that event, or its current state when it has fewer events. Without a
    /// version, the aggregate after every event that was committed before the call.
    pub at: Option<u64>,
}

impl LoadOptions {
    /// The current state, folded from the first event.
    pub const REBUILD: Self = Self { policy: LoadPolicy::Rebuild, at_least: 0, at: None };
}

/// The state that a fold may start from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoadPolicy {
    /// The cached state or a snapshot, if there is one.
    #[default]
    Incremental,
    /// The state before the first event: every event is folded, regardless of cache and snapshots.
    Rebuild,
}

impl EventStore {
    /// The aggregate with every event that was committed before the call.
    ///
    /// With a cached state, one round trip reads the events after it. Without one, or when it is far behind, a round
    /// trip reads the snapshot and the latest few events in parallel, and a second one reads exactly the events between
    /// the two, if there are any.
    pub async fn load(&self, model: &dyn Model, key: &AggregateKey) -> Result<Loaded, StoreError> {
        self.load_with(model, key, LoadOptions::default()).await
    }

    /// The aggregate at a given version, or folded without cache and snapshots.
    pub async fn load_with(
        &self,
        model: &dyn Model,
        key: &AggregateKey,
        options: LoadOptions,
    ) -> Result<Loaded, StoreError> {
        // Boxed, because most writes contain a load and do not run it: it would be moved with the future of each.
        Box::pin(self.stream(model, key).load(options)).await
    }
}

impl EventStream<'_> {
    pub(crate) async fn load(&self, LoadOptions { policy, at_least, at }: LoadOptions) -> Result<Loaded, StoreError> {
        let base = match (policy, at) {
            (LoadPolicy::Incremental, None) => return self.load_current(at_least).await,
            (LoadPolicy::Incremental, Some(version)) => self.base_at(version).await?,
            (LoadPolicy::Rebuild, _) => self.model.before_first_event(),
        };
        let folded = self.fold_on(base, at_least, at.unwrap_or(keys::MAX_SEQ_NUM)).await?;
        if at.is_some() { self.loaded(folded) } else { self.cache(folded) }
    }

    async fn load_current(&self, at_least: u64) -> Result<Loaded, StoreError> {
        let cached = self.store.cached(self.key);
        let known = cached.as_ref().map_or_else(|| self.model.before_first_event(), |cached| cached.folded.clone());
        let folded = match cached {
            // No snapshot saves a read, so the events are read in order.
            _ if self.model.full_history() => self.fold_on(known, at_least, keys::MAX_SEQ_NUM).await?,
            Some(_) => self.catch_up(known).await?,
            None => self.load_cold(known).await?,
        };
        let folded = self.fold_on(folded, at_least, at_least).await?;
        match cached {
            Some(cached) if cached.version() == folded.version() => Ok(cached),
            _ => self.cache(folded),
        }
    }

    pub(crate) fn loaded(&self, mut folded: Folded) -> Result<Loaded, StoreError> {
        let panicked =
            |panic: AggregatePanic| StoreError::Panicked { item: self.key.to_string(), source: panic.into() };
        let unwritable = |error| match error {
            StateError::Json(error) => self.corrupt_state(error),
            StateError::Panicked(panic) => panicked(panic),
        };
        // A state that was opened before, or has values from before their fields were personal.
        if self.model.is_forgotten(&folded).map_err(panicked)? {
            folded = self.model.without_personal(folded, &self.key.id).map_err(unwritable)?;
        }
        let state = self.model.state(&folded).map_err(unwritable)?;
        let state = personal::attributed(state, (&self.key.aggregate_type, &self.key.id));
        let state = state.map_err(|reason| self.corrupt_state(reason))?;
        Ok(Loaded { folded, state: Arc::new(state) })
    }

    /// Like [`loaded`](Self::loaded), and caches the result for the next command.
    fn cache(&self, folded: Folded) -> Result<Loaded, StoreError> {
        let loaded = self.loaded(folded)?;
        self.put_in_cache(&loaded);
        Ok(loaded)
    }

    /// Folds from the cached state, unless it is so far behind that a snapshot saves reads: by more than twice
    /// `SNAPSHOT_EVERY` events, or by more than a page of 1 MB. The limit is twice `SNAPSHOT_EVERY`, so that the
    /// process that takes the snapshots needs only one call.
    async fn catch_up(&self, cached: Folded) -> Result<Folded, StoreError> {
        let version = cached.version();
        let limit = i32::try_from(2 * self.store.settings.snapshot_every).unwrap_or(i32::MAX);
        let query = self.events_between(version + 1, keys::MAX_SEQ_NUM).limit(limit);
        let output = query.send().await.map_err(|error| StoreError::of_call("read an aggregate's events", error))?;
        let events = self.read_events(output.items.unwrap_or_default()).await?;
        let folded = self.fold(cached, events.contiguous_after(version))?;
        if output.last_evaluated_key.is_some() {
            return self.load_cold(folded).await;
        }
        self.fold_to_end(folded, events.stream_end).await
    }

    /// Folds from the snapshot, or from `known` when that is newer.
    async fn load_cold(&self, known: Folded) -> Result<Folded, StoreError> {
        let (mut base, mut latest) = try_join(self.base(), self.latest_events()).await?;
        if base.version() > latest.last() {
            // Either its events became visible between the two reads, or it is a snapshot of events that do not exist.
            latest = self.latest_events().await?;
            if base.version() > latest.stream_end {
                let version = base.version();
                tracing::warn!(aggregate = %self.key, version, "ignoring a snapshot that is ahead of the events");
                base = self.model.before_first_event();
            }
        }
        if known.version() > base.version() {
            base = known;
        }
        // The events between the snapshot and the page of latest events.
        let first = latest.events.first().map_or(0, |event| event.seq_num);
        if first > base.version() + 1 {
            base = self.fold_on(base, latest.stream_end, first - 1).await?;
        }
        let version = base.version();
        let mut folded = self.fold(base, latest.contiguous_after(version))?;
        // A snapshot does not hold the time of its last event, which the next decision must not precede.
        if let Some(last) = latest.events.last() {
            folded = folded.with_last_event(last);
        }
        self.fold_to_end(folded, latest.stream_end).await
    }

    /// Reads the events that a query during a transaction did not return, if any.
    async fn fold_to_end(&self, folded: Folded, stream_end: u64) -> Result<Folded, StoreError> {
        if folded.version() >= stream_end {
            return Ok(folded);
        }
        self.fold_on(folded, stream_end, keys::MAX_SEQ_NUM).await
    }

    /// The latest [`FIRST_PAGE`] events in order, or fewer when they are large.
    async fn latest_events(&self) -> Result<QueriedEvents, StoreError> {
        let query = self.events_between(1, keys::MAX_SEQ_NUM).scan_index_forward(false).limit(FIRST_PAGE);
        let doing = "read an aggregate's latest events";
        let mut items =
            query.send().await.map_err(|error| StoreError::of_call(doing, error))?.items.unwrap_or_default();
        items.reverse();
        self.read_events(items).await
    }

    /// Folds the stored events after `onto` up to and including `last`. The stream is known to have events up to `end`
    /// or further.
    ///
    /// A query during a transaction may return some of its rows and not others. Missing events are queried again,
    /// because they appear a moment later; events that stay missing are an error.
    async fn fold_on(&self, onto: Folded, mut end: u64, last: u64) -> Result<Folded, StoreError> {
        let mut folded = onto;
        let mut retries = None;
        while folded.version() < last {
            let before = folded.version();
            let mut pages = self.events_between(folded.version() + 1, last).into_paginator().send();
            while let Some(page) = pages.next().await {
                let page = page.map_err(|error| StoreError::of_call("read an aggregate's events", error))?;
                let events = self.read_events(page.items.unwrap_or_default()).await?;
                end = end.max(events.stream_end);
                let version = folded.version();
                folded = self.fold(folded, events.contiguous_after(version))?;
                if folded.version() < events.last() {
                    break;
                }
            }
            if folded.version() >= end.min(last) {
                break;
            }
            if folded.version() > before {
                // These are other events than those that were missing before: of a later transaction.
                retries = None;
            }
            let retries = retries.get_or_insert_with(|| Backoff::until(Instant::now() + COMMIT_TIME));
            if !retries.wait_to_deadline().await {
                let missing = folded.version() + 1;
                return Err(self.corrupt(format!("event {missing} is missing, the stream has events up to {end}")));
            }
        }
        Ok(folded)
    }

    async fn read_events(&self, rows: Vec<Item>) -> Result<QueriedEvents, StoreError> {
        let mut queried = QueriedEvents::read(rows)?;
        self.store.open_events(queried.events.iter_mut().map(|event| (self.key, event))).await?;
        Ok(queried)
    }

    fn fold(&self, onto: Folded, events: &[RecordedEvent]) -> Result<Folded, StoreError> {
        self.model.fold(onto, events).map_err(|event| StoreError::unreadable(self.key, event))
    }

    /// The rows of the events from one number to another, both included.
    fn events_between(&self, first: u64, last: u64) -> QueryFluentBuilder {
        self.store.rows_between(self.key, keys::event_sk(first), keys::event_sk(last))
    }
}

/// Events in order, as a query returned them.
struct QueriedEvents {
    events: Vec<RecordedEvent>,
    /// The number of the last event that is known to exist: the rows of an append contain the number of its last event.
    stream_end: u64,
}

impl QueriedEvents {
    fn read(items: Vec<Item>) -> Result<Self, StoreError> {
        let mut stream_end = 0;
        let mut events = Vec::with_capacity(items.len());
        for item in items {
            let item = event_item(item)?;
            stream_end = stream_end.max(item.append_end.unwrap_or(item.seq_num));
            events.push(item.into_event()?);
        }
        Ok(Self { events, stream_end })
    }

    /// The number of the last of these events; 0 when there is none.
    fn last(&self) -> u64 {
        self.events.last().map_or(0, |event| event.seq_num)
    }

    /// The events that follow `version` and each other without a gap.
    fn contiguous_after(&self, version: u64) -> &[RecordedEvent] {
        let after = &self.events[self.events.partition_point(|event| event.seq_num <= version)..];
        &after[..(version + 1..).zip(after).take_while(|(next, event)| event.seq_num == *next).count()]
    }
}
