//! The handle for administrative calls.

use daybook_event_store::EventStore;

/// The administrative calls of a store.
#[derive(Clone, Copy, Debug)]
pub struct Admin<'a> {
    pub(crate) store: &'a EventStore,
}

/// Adds the administrative calls to the store.
pub trait AdminCalls {
    /// The administrative calls, for example `store.admin().verify(model, &key, now)`.
    fn admin(&self) -> Admin<'_>;
}

impl AdminCalls for EventStore {
    fn admin(&self) -> Admin<'_> {
        Admin { store: self }
    }
}
