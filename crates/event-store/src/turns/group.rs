//! A group: the decisions of several requests, which one transaction appends.

use std::sync::{Arc, OnceLock};

use daybook_decider::Folded;
use futures_util::future::{BoxFuture, FutureExt, Shared};
use tokio::time::Instant;
use ulid::Ulid;

use crate::append::AppendError;
use crate::loaded::Loaded;

/// The part of a group that its members hold. It stays until the last of them is done, even if the queue has removed
/// the group.
#[derive(Debug)]
pub(crate) struct Group {
    /// The state that the first request has decided on. The transaction is conditional on its version.
    pub(crate) base: Folded,
    /// The time until which the decisions may be sent.
    pub(crate) send_until: Instant,
    append: OnceLock<GroupAppend>,
    is_cached: OnceLock<()>,
}

/// The append of a group, in one transaction.
#[derive(Clone, Debug)]
pub(crate) struct GroupAppend {
    /// The call. Every member polls it, so it continues when members are cancelled.
    pub(crate) call: Shared<BoxFuture<'static, Result<(), Arc<AppendError>>>>,
    /// The state after the last decision.
    pub(crate) after: Loaded,
    /// The number and id of the first event; `None` without events.
    pub(crate) first_event: Option<(u64, Ulid)>,
}

impl Group {
    pub(crate) fn new(base: Folded, send_until: Instant) -> Self {
        Self { base, send_until, append: OnceLock::new(), is_cached: OnceLock::new() }
    }

    /// The append; `None` until it starts.
    pub(crate) fn append(&self) -> Option<&GroupAppend> {
        self.append.get()
    }

    /// Caches the state after the last decision, once for all members, when the group is stored.
    pub(crate) fn cache_once(&self, cache: impl FnOnce(&Loaded)) {
        let Some(append) = self.append() else { return };
        self.is_cached.get_or_init(|| cache(&append.after));
    }

    /// Starts the append: the members poll this call from now on.
    pub(super) fn start_append(
        &self,
        call: impl Future<Output = Result<(), AppendError>> + Send + 'static,
        after: Loaded,
        first_event: Option<(u64, Ulid)>,
    ) {
        let call = call.map(|result| result.map_err(Arc::new)).boxed().shared();
        self.append.get_or_init(|| GroupAppend { call, after, first_event });
    }
}
