//! What a load returns, and the cache holds.

use std::sync::Arc;

use daybook_decider::{Folded, Json};

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
