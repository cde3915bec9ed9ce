//! The event stream of one aggregate: the subject of loads, appends and snapshots.

use std::sync::Arc;

use daybook_decider::{AggregatePanic, Folded, Model, StateError, personal};
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
        StoreError::corrupt(self.key.to_string(), source)
    }

    pub(crate) fn corrupt_state(&self, source: impl Into<Cause>) -> StoreError {
        StoreError::corrupt(format!("the state of {}", self.key), source)
    }
}
