//! What the pages need.

use axum::Router;
use daybook_decider::{Model, Registry};
use daybook_event_store::EventStore;

use crate::access::{Access, new_token};
use crate::stack::Stack;

/// The console of one stack.
pub struct Console {
    pub(crate) registry: Registry,
    pub(crate) store: EventStore,
    pub(crate) stack: Stack,
    pub(crate) access: Access,
    /// Every form carries it, so that no other site can send one.
    pub(crate) form_token: String,
}

impl Console {
    /// The console over the events in `store`, for the aggregate types of `registry`. `stack` is the HTTP interface of the
    /// stack: its API, and the paths below `/_dev/`.
    pub fn new(registry: Registry, store: EventStore, stack: Router, access: Access) -> Self {
        Self { registry, store, stack: Stack::new(stack), access, form_token: new_token() }
    }

    /// The same console with this token in its forms, so that it accepts the forms of another process with the token.
    #[must_use]
    pub fn with_form_token(self, form_token: String) -> Self {
        Self { form_token, ..self }
    }

    /// Every name that the first event of an aggregate of this type may have, as partitions of the index.
    pub(crate) fn partitions(&self, model: &dyn Model) -> Vec<daybook_event_store::admin::IndexPartition> {
        self.store.admin().index_partitions(&model.opening_events())
    }
}
