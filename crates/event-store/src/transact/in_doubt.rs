//! Appends with an unknown outcome.

use ulid::Ulid;

use super::decision::Outcome;
use crate::append::FirstEvent;
use crate::error::Cause;
use crate::idempotency::CommandResponse;

/// The appends of a transaction whose outcome is unknown. Each is conditional on the same version, so at most one of
/// them is stored.
#[derive(Debug, Default)]
pub(super) struct InDoubt(Vec<AppendInDoubt>);

#[derive(Debug)]
pub(super) struct AppendInDoubt {
    /// Its first event, which may be that of another request that shares the append; `None` if it only stores responses.
    pub(super) first: Option<FirstEvent>,
    pub(super) outcome: Outcome,
    pub(super) cause: Cause,
}

impl InDoubt {
    pub(super) fn add(&mut self, append: AppendInDoubt) {
        self.0.push(append);
    }

    /// The event that shows which append is stored; `None` if no append has events. All have the same aggregate and number.
    pub(super) fn event(&self) -> Option<&FirstEvent> {
        self.0.iter().find_map(|append| append.first.as_ref())
    }

    /// Resolves all appends with events, by the event that is stored under their number. Returns the one that is stored.
    pub(super) fn resolve_by_event(&mut self, stored: Ulid) -> Option<AppendInDoubt> {
        let (with_events, without): (Vec<_>, _) =
            std::mem::take(&mut self.0).into_iter().partition(|append| append.first.is_some());
        self.0 = without;
        with_events.into_iter().find(|append| append.first.as_ref().is_some_and(|first| first.id == stored))
    }

    /// Resolves all appends, by the response that is stored under their idempotency key. Returns one that has the same.
    pub(super) fn resolve_by_response(&mut self, stored: &CommandResponse) -> Option<AppendInDoubt> {
        std::mem::take(&mut self.0).into_iter().find(|append| append.outcome.response == *stored)
    }

    /// Resolves all appends: a later append on the same version is stored, so none of these ever will be.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// The reason why the outcome of the last append is unknown. Nothing is in doubt afterwards.
    pub(super) fn take_cause(&mut self) -> Option<Cause> {
        std::mem::take(&mut self.0).pop().map(|append| append.cause)
    }
}
