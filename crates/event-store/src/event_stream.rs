//! The event stream of one aggregate: the subject of loads, appends and snapshots.

use std::sync::Arc;

use daybook_decider::{Folded, Model, StateError};
use daybook_table::AggregateKey;

use crate::error::{Cause, StoreError};
use crate::loaded::Loaded;
use crate::store::EventStore;

/// An aggregate of one type in the store.
#[derive(Clone, Copy)]
pub(crate) struct EventStream<'a> {
    pub(crate) store: &'a EventStore,
    pub(crate) model: &'a dyn Model,
    pub(crate) key: &'a AggregateKey,
}

impl EventStore {
    pub(crate) fn stream<'a>(&'a self, model: &'a dyn Model, key: &'a AggregateKey) -> EventStream<'a> {
        EventStream { store: self, model, key }
    }
}

impl EventStream<'_> {
    /// The folded state together with its JSON form.
    pub(crate) fn loaded(&self, folded: Folded) -> Result<Loaded, StoreError> {
        let state = self.model.state(&folded).map_err(|error| match error {
            StateError::Json(error) => self.corrupt_state(error),
            StateError::Panicked(panic) => StoreError::Panicked { item: self.key.to_string(), source: panic.into() },
        })?;
        Ok(Loaded { folded, state: Arc::new(state) })
    }

    /// Like [`loaded`](Self::loaded), and caches the result for the next command.
    pub(crate) fn cache(&self, folded: Folded) -> Result<Loaded, StoreError> {
        let loaded = self.loaded(folded)?;
        self.put_in_cache(&loaded);
        Ok(loaded)
    }

    /// Caches the state for the next command.
    pub(crate) fn put_in_cache(&self, loaded: &Loaded) {
        if loaded.version() > 0 {
            self.store.cache.put(self.key, loaded);
        }
    }

    pub(crate) fn corrupt(&self, source: impl Into<Cause>) -> StoreError {
        StoreError::Corrupt { item: self.key.to_string(), source: source.into() }
    }

    pub(crate) fn corrupt_state(&self, source: impl Into<Cause>) -> StoreError {
        StoreError::Corrupt { item: format!("the state of {}", self.key), source: source.into() }
    }
}
