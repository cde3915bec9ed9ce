//! The records that mappings discarded.

use std::sync::{Arc, Mutex, PoisonError};

use daybook_function_runtime::with_causes;
use daybook_local_aws::state::{Journal, StateFile};
use serde_json::Value;

/// The records that mappings discarded, as an on-failure destination receives them. Clones share them.
#[derive(Clone)]
pub(super) enum DiscardedRecords {
    /// They end with the process.
    InMemory(Arc<Mutex<Vec<Value>>>),
    /// They survive a restart.
    InFile(StateFile),
}

impl DiscardedRecords {
    pub(super) fn new(file: Option<StateFile>) -> Self {
        file.map_or_else(|| Self::InMemory(Arc::default()), Self::InFile)
    }

    pub(super) fn all(&self) -> Vec<Value> {
        match self {
            Self::InMemory(records) => records.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            Self::InFile(file) => file.entries(Journal::Discarded).unwrap_or_else(|error| {
                tracing::error!(error = with_causes(&error), "cannot read the discarded records");
                Vec::new()
            }),
        }
    }

    pub(super) fn push(&self, discarded: Value) {
        match self {
            Self::InMemory(records) => records.lock().unwrap_or_else(PoisonError::into_inner).push(discarded),
            Self::InFile(file) => {
                if let Err(error) = file.append(Journal::Discarded, &discarded) {
                    tracing::error!(error = with_causes(&error), %discarded, "cannot store the discarded records");
                }
            }
        }
    }
}
