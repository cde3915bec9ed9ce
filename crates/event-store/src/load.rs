//! The state of an aggregate, now or as it was.

use daybook_decider::{Folded, Model};
use daybook_table::{AggregateKey, keys};
use futures_util::future::try_join;

use crate::error::StoreError;
use crate::event_stream::EventStream;
use crate::fold::QueriedEvents;
use crate::loaded::Loaded;
use crate::store::EventStore;

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
        self.stream(model, key).load(options).await
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
        let folded = match &cached {
            Some(cached) => self.catch_up(cached.folded.clone()).await?,
            None => self.load_cold(self.model.before_first_event()).await?,
        };
        let folded = self.fold_on(folded, at_least, at_least).await?;
        match cached {
            Some(cached) if cached.version() == folded.version() => Ok(cached),
            _ => self.cache(folded),
        }
    }

    /// Goes on from the cached state, unless that is further behind than a snapshot would be: by more than twice what lies
    /// between two of them, so that whoever takes them does so in one call, or by more than a page of 1 MB.
    async fn catch_up(&self, cached: Folded) -> Result<Folded, StoreError> {
        let version = cached.version();
        let query = self.events_between(version + 1, keys::MAX_SEQ_NUM).limit(self.page().saturating_mul(2));
        let output = query.send().await.map_err(|error| StoreError::of_call("read an aggregate's events", error))?;
        let events = QueriedEvents::read(output.items.unwrap_or_default())?;
        let folded = self.fold(cached, events.contiguous_after(version))?;
        if output.last_evaluated_key.is_some() {
            return self.load_cold(folded).await;
        }
        self.fold_to_end(folded, events.stream_end).await
    }

    /// Goes on from the snapshot, or from a state that is newer.
    async fn load_cold(&self, known: Folded) -> Result<Folded, StoreError> {
        let (mut base, mut newest) = try_join(self.base(), self.newest_events()).await?;
        if base.version() > newest.stream_end {
            // Either its events were appended between the two reads, or it is a snapshot of events that are not there.
            newest = self.newest_events().await?;
            if base.version() > newest.stream_end {
                let version = base.version();
                tracing::warn!(aggregate = %self.key, version, "ignoring a snapshot that is ahead of the events");
                base = self.model.before_first_event();
            }
        }
        if known.version() > base.version() {
            base = known;
        }
        // Events between the snapshot and the page of newest ones: none when a snapshot is taken every page.
        let first = newest.events.first().map_or(0, |event| event.seq_num);
        if first > base.version() + 1 {
            base = self.fold_on(base, newest.stream_end, first - 1).await?;
        }
        let version = base.version();
        let folded = self.fold(base, newest.contiguous_after(version))?;
        self.fold_to_end(folded, newest.stream_end).await
    }

    /// Reads what a query beside a transaction has not seen, if anything.
    async fn fold_to_end(&self, folded: Folded, stream_end: u64) -> Result<Folded, StoreError> {
        if folded.version() >= stream_end {
            return Ok(folded);
        }
        self.fold_on(folded, stream_end, keys::MAX_SEQ_NUM).await
    }

    /// The newest events in order, as many as a snapshot may be behind; fewer when they are large.
    async fn newest_events(&self) -> Result<QueriedEvents, StoreError> {
        let query = self.events_between(1, keys::MAX_SEQ_NUM).scan_index_forward(false).limit(self.page());
        let doing = "read an aggregate's newest events";
        let mut items =
            query.send().await.map_err(|error| StoreError::of_call(doing, error))?.items.unwrap_or_default();
        items.reverse();
        QueriedEvents::read(items)
    }

    /// As many events as a snapshot may be behind.
    fn page(&self) -> i32 {
        i32::try_from(self.store.settings.snapshot_every).unwrap_or(i32::MAX)
    }
}
