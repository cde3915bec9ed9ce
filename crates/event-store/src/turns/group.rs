//! A group: the decisions of several requests, which one transaction appends.

use std::sync::{Arc, OnceLock};

use daybook_decider::Folded;
use futures_util::future::{BoxFuture, FutureExt, Shared};

use crate::append::{AppendCall, AppendError, Batch, FirstEvent};

/// The part of a group that its members hold. It stays until the last of them is done, even if the queue has removed
/// the group.
#[derive(Debug)]
pub(crate) struct Group {
    /// The state that the first request has decided on. The transaction is conditional on its version.
    pub(crate) base: Folded,
    call: AppendCall,
    append: OnceLock<GroupAppend>,
}

/// The append of a group, in one transaction.
#[derive(Clone, Debug)]
pub(crate) struct GroupAppend {
    /// The call. Every member polls it, so it continues when members are cancelled.
    pub(crate) call: Shared<BoxFuture<'static, Result<(), Arc<AppendError>>>>,
    /// The first event; `None` without events.
    pub(crate) first_event: Option<FirstEvent>,
}

/// The turn of a request.
#[derive(Debug)]
pub(crate) enum Turn {
    /// No group is open: the request decides on the stored state.
    First,
    /// Its decision can join this group. The second value is the state after the last decision of the group.
    After(Arc<Group>, Folded),
}

impl Group {
    pub(crate) fn new(base: Folded, call: AppendCall) -> Self {
        Self { base, call, append: OnceLock::new() }
    }

    /// The append; `None` until it starts.
    pub(crate) fn append(&self) -> Option<&GroupAppend> {
        self.append.get()
    }

    /// Starts the append: the members poll the call from now on.
    pub(super) fn start_append(&self, batch: Batch) {
        let first_event = batch.first_event();
        let call = self.call.clone().send(batch).map(|stored| stored.map_err(Arc::new)).boxed().shared();
        self.append.get_or_init(|| GroupAppend { call, first_event });
    }
}
