//! A group: the decisions of several requests, which one transaction appends.

use std::sync::{Arc, OnceLock};

use daybook_decider::Folded;
use futures_util::future::{BoxFuture, FutureExt, Shared};
use tokio::time::Instant;
use ulid::Ulid;

use crate::append::error::SendError;
use crate::error::StoreError;

/// A group as its members see it. It outlives its place in the queue.
#[derive(Debug)]
pub(crate) struct Group {
    /// The state that the first request has decided on. The transaction is conditional on its version.
    pub(crate) base: Folded,
    /// The time until which the decisions may be sent.
    pub(crate) send_until: Instant,
    sent: OnceLock<SentGroup>,
    is_cached: OnceLock<()>,
}

/// The transaction of a group.
#[derive(Clone, Debug)]
pub(crate) struct SentGroup {
    /// The call. Every member polls it, so it goes on when members are cancelled.
    pub(crate) call: Shared<BoxFuture<'static, Result<(), Arc<SendError>>>>,
    /// The state after the last decision.
    pub(crate) after: Folded,
    /// The number and id of the first event; `None` without events.
    pub(crate) first_event: Option<(u64, Ulid)>,
}

impl Group {
    pub(crate) fn new(base: Folded, send_until: Instant) -> Self {
        Self { base, send_until, sent: OnceLock::new(), is_cached: OnceLock::new() }
    }

    /// The transaction; `None` while requests may still join.
    pub(crate) fn sent(&self) -> Option<&SentGroup> {
        self.sent.get()
    }

    /// Caches the state after the last decision, once for all members, when the group is stored. If it cannot be cached,
    /// the next request reads it.
    pub(crate) fn cache_once(&self, cache: impl FnOnce(&Folded) -> Result<(), StoreError>) {
        let Some(sent) = self.sent() else { return };
        self.is_cached.get_or_init(|| {
            if let Err(error) = cache(&sent.after) {
                tracing::warn!(error = &error as &dyn std::error::Error, "the state after an append cannot be cached");
            }
        });
    }

    pub(super) fn send(
        &self,
        call: impl Future<Output = Result<(), SendError>> + Send + 'static,
        after: Folded,
        first_event: Option<(u64, Ulid)>,
    ) {
        let call = call.map(|result| result.map_err(Arc::new)).boxed().shared();
        self.sent.get_or_init(|| SentGroup { call, after, first_event });
    }
}
