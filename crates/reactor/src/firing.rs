//! The decision on the command of one deadline.

use daybook_decider::joint::decide_due;
use daybook_decider::{
    Caller, CommandError, DecisionInput, Decisions, Folded, Involved, JointError, Meta, Model, Registry,
};
use daybook_event_store::{CommandResponse, Decide, EventStore, ResponseDetail, Undecided};
use daybook_table::DueDeadline;
use jiff::Timestamp;
use ulid::Ulid;

/// A deadline that is decided. Its response has no body, and one of the following statuses.
pub(crate) struct Firing<'a> {
    pub(crate) registry: &'a Registry,
    pub(crate) store: &'a EventStore,
    pub(crate) deadline: &'a DueDeadline,
    pub(crate) meta: Meta,
}

/// The status if the state does not declare the deadline any more, so that the append has deleted its row.
pub(crate) const GONE: u16 = 200;

/// The status if the state still declares the deadline.
pub(crate) const DECLARED: u16 = 202;

/// Why nothing is appended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotFired {
    /// The clock was set back since.
    #[error("it is not due yet")]
    Early,
    /// The state does not declare the deadline, or has another time for it.
    #[error("the state does not declare it")]
    NotDeclared,
    #[error("its command was rejected: {0}")]
    Rejected(String),
    #[error("its command has no effect")]
    NoEffect,
    /// The command cannot be decided.
    #[error("its command cannot be decided: {0}")]
    Undecidable(JointError),
}

impl Decide for Firing<'_> {
    type Error = NotFired;

    fn decide(&self, before: &Folded, involved: &Involved) -> Result<Decisions, Undecided<NotFired>> {
        let DueDeadline { due, key, name } = self.deadline;
        let seed = Ulid::from_datetime(self.store.now().into());
        let now = i64::try_from(seed.timestamp_ms()).unwrap_or_default();
        let now = Timestamp::from_millisecond(now).unwrap_or_default();
        if now < *due {
            return Err(NotFired::Early.into());
        }
        let epoch = self.store.settings().epoch;
        let input = DecisionInput::new(now, seed, self.meta.clone(), Caller::system(), epoch);
        let input = DecisionInput { involved: involved.clone(), ..input };
        match decide_due(self.registry, key, before, (name, *due), &input) {
            None => Err(NotFired::NotDeclared.into()),
            Some(Err(JointError { error: CommandError::Needs(needs), .. })) => Err(Undecided::Needs(needs)),
            Some(Err(error)) => Err(NotFired::Undecidable(error).into()),
            Some(Ok(decisions)) => Ok(decisions),
        }
    }

    fn model(&self, aggregate_type: &str) -> Option<&dyn Model> {
        self.registry.get(aggregate_type)
    }

    fn respond(&self, _: &Folded, decided: &Decisions, _: ResponseDetail) -> Result<CommandResponse, NotFired> {
        let Decisions { own, others, .. } = decided;
        if own.events.is_empty() && others.iter().all(|(_, other)| other.events.is_empty()) {
            let rejected = own.rejection.as_ref().map(|rejection| NotFired::Rejected(rejection.detail.clone()));
            return Err(rejected.unwrap_or(NotFired::NoEffect));
        }
        let is_dropped = own.deadlines.dropped.contains(&self.deadline.name);
        let is_moved = own.deadlines.set.iter().any(|(name, _)| *name == self.deadline.name);
        let status = if is_dropped || is_moved { GONE } else { DECLARED };
        Ok(CommandResponse { status, version: own.after.version(), state_version: 0, body: String::new() })
    }
}
