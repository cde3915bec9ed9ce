//! The result of a load, which the cache also holds.

use std::sync::Arc;

use daybook_decider::{Folded, Json};

/// An aggregate at some version, with its state as JSON. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The folded state, from which decisions and folds continue.
    pub folded: Folded,
    pub state: Arc<Json>,
}

impl Loaded {
    /// The number of its events; 0 when it does not exist.
    pub fn version(&self) -> u64 {
        self.folded.version()
    }
}
