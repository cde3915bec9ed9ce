//! A decision on its way to the table: drafted, ready to be appended and, while the outcome of its append is unknown, in doubt.

use std::collections::BTreeSet;

use daybook_decider::{AggregateKey, Decided, Decisions, Need, personal};
use ulid::Ulid;

use super::decide::{End, TransactError};
use crate::append::{AppendBatch, FirstEvent};
use crate::cache::Loaded;
use crate::error::Cause;
use crate::idempotency::CommandResponse;
use crate::settle::DecisionInFlight;
use crate::subject_keys::{Keys, SubjectKey, stack_key_for};

pub(super) struct ReadyDecision {
    pub(super) batch: AppendBatch,
    pub(super) outcome: Outcome,
}

/// What follows if a decision is stored.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) after: Loaded,
    /// The other aggregates that change, after the decision.
    pub(super) others: Vec<(AggregateKey, Loaded)>,
    /// The aggregates whose personal data the decision forgets.
    pub(super) forgotten: Vec<AggregateKey>,
    pub(super) response: CommandResponse,
}

impl Outcome {
    /// Whether the append contains no decision of another request: it changes other aggregates, or ends a key that
    /// later decisions would need.
    pub(super) fn is_alone(&self) -> bool {
        !self.others.is_empty() || !self.forgotten.is_empty()
    }
}

/// What was decided, before its personal values are sealed.
pub(super) struct Drafted {
    pub(super) decided: Decisions,
    pub(super) in_flight: DecisionInFlight,
}

pub(super) enum NotReady<E> {
    /// The decision needs to know this about other aggregates.
    Needs(Vec<Need>),
    /// Its personal values need the keys of these subjects. Then it can be appended.
    Keys(BTreeSet<String>, Box<Drafted>),
    /// This is the result of the transaction, if the states are current.
    End(End<E>),
}

impl<E> From<TransactError<E>> for NotReady<E> {
    fn from(error: TransactError<E>) -> Self {
        Self::End(Err(error))
    }
}

/// The subjects of the personal values of a decision and the response to store, and the stack for its claims.
pub(super) fn subjects(key: &AggregateKey, decided: &Decisions, response: Option<&str>) -> BTreeSet<String> {
    let claims = parts(key, decided).filter_map(|(_, part)| stack_key_for(&part.claims));
    let events = parts(key, decided).flat_map(|(_, part)| &part.events).map(|event| event.data.text());
    events.chain(response).flat_map(personal::subjects).chain(claims).collect()
}

/// A subject of the events of a decision that was forgotten before, and is not forgotten again by the decision.
pub(super) fn subject_that_was_forgotten(key: &AggregateKey, decided: &Decisions, keys: &Keys) -> Option<String> {
    let events = parts(key, decided).flat_map(|(_, part)| &part.events);
    let mut subjects = events.flat_map(|event| personal::subjects(event.data.text()));
    let forgets = |subject: &str| parts(key, decided).any(|(key, part)| part.forgets && key.to_string() == subject);
    subjects.find(|subject| matches!(keys.get(subject), Some(SubjectKey::Forgotten)) && !forgets(subject))
}

pub(super) fn parts<'a>(
    key: &'a AggregateKey,
    decided: &'a Decisions,
) -> impl Iterator<Item = (&'a AggregateKey, &'a Decided)> {
    std::iter::once((key, &decided.own)).chain(decided.others.iter().map(|(key, other)| (key, other)))
}

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
