//! What the pages need.

use std::collections::BTreeSet;

use axum::Router;
use daybook_admin::{AdminCalls, IndexPartition};
use daybook_decider::{Model, Registry};
use daybook_event_store::EventStore;
use daybook_projection::Projections;
use daybook_view_store::ViewStore;

use crate::access::{Access, new_token};
use crate::stack::Stack;
use crate::stack_kind::{DeployedStack, StackKind};

/// The read models of a stack.
pub(crate) struct Views {
    pub(crate) projections: Projections,
    pub(crate) store: ViewStore,
}

/// The console of one stack.
pub struct Console {
    pub(crate) registry: Registry,
    pub(crate) store: EventStore,
    pub(crate) stack: Stack,
    pub(crate) kind: StackKind,
    /// `None` for a stack without read models.
    pub(crate) views: Option<Views>,
    pub(crate) access: Access,
    /// Every form carries it, so that no other site can send one.
    pub(crate) form_token: String,
}

impl Console {
    /// The console of the local stack over the events in `store`, for the aggregate types of `registry`. `stack` is the
    /// HTTP interface of the stack: its API, and the paths below `/_dev/`.
    pub fn new(registry: Registry, store: EventStore, stack: Router, access: Access) -> Self {
        let (stack, kind) = (Stack::new(stack), StackKind::Local);
        Self { registry, store, stack, kind, views: None, access, form_token: new_token() }
    }

    /// The same console, which also shows how far the projections are behind.
    #[must_use]
    pub fn with_views(self, projections: Projections, store: ViewStore) -> Self {
        Self { views: Some(Views { projections, store }), ..self }
    }

    /// The same console for a stack on AWS. The interface of such a stack has the paths `/_dev/queues` (all queues),
    /// `/_dev/dlq` (the dead-letter queue only), `/_dev/relay` and `/_dev/health`, and those below `/_dev/dlq/` if
    /// writes are allowed.
    #[must_use]
    pub fn of_deployed_stack(self, stack: DeployedStack) -> Self {
        Self { kind: StackKind::Deployed(stack), ..self }
    }

    /// The same console with this token in its forms, so that it accepts the forms of another process with the token.
    #[must_use]
    pub fn with_form_token(self, form_token: String) -> Self {
        Self { form_token, ..self }
    }

    /// Every name that the first event of an aggregate of this type may have, as partitions of the index.
    pub(crate) fn partitions(&self, model: &dyn Model) -> Vec<IndexPartition> {
        self.store.admin().index_partitions(&model.opening_events())
    }

    /// Every name that any event of an aggregate of this type may have, as partitions of the index.
    pub(crate) fn partitions_of_events(&self, model: &dyn Model) -> Vec<IndexPartition> {
        let names: BTreeSet<_> = model.stored_events().into_iter().map(|(name, _)| name).collect();
        self.store.admin().index_partitions(&names.into_iter().collect::<Vec<_>>())
    }
}
