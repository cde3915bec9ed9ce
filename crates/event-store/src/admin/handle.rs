//! The handle for administrative calls, which makes them explicit: a Lambda function does not make one by accident.

use crate::store::EventStore;

/// The administrative calls of a store.
#[derive(Clone, Copy, Debug)]
pub struct Admin<'a> {
    pub(super) store: &'a EventStore,
}

impl EventStore {
    /// The administrative calls.
    pub fn admin(&self) -> Admin<'_> {
        Admin { store: self }
    }
}
