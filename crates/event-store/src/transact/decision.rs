//! A decision on its way to the table: drafted, ready to be appended and, while the outcome of its append is unknown, in doubt.

use std::collections::BTreeSet;

use daybook_decider::{AggregateKey, Decided, Decisions, Folded, Need, personal};
use ulid::Ulid;

use super::Transaction;
use super::decide::{Decide, End, ResponseDetail, TransactError, TransactOptions, Transacted, Undecided};
use crate::append::{Batch, FirstEvent, NotBuilt};
use crate::cache::Loaded;
use crate::error::{Cause, StoreError};
use crate::idempotency::{CommandResponse, ResponseToStore};
use crate::limits::TooLarge;
use crate::settle::DecisionInFlight;
use crate::store::EventStream;
use crate::subject_keys::{Keys, MAX_SUBJECTS, SubjectKey, stack_key_for};

/// A decision that is ready to be appended.
pub(super) struct Decision {
    pub(super) batch: Batch,
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
    decided: Decisions,
    in_flight: DecisionInFlight,
}

/// Why there is nothing to append.
pub(super) enum NotDecided<E> {
    /// The decision needs to know this about other aggregates.
    Needs(Vec<Need>),
    /// Its personal values need the keys of these subjects. Then it can be appended.
    Keys(BTreeSet<String>, Box<Drafted>),
    /// This is the result of the transaction, if the states are current.
    End(End<E>),
}

impl<E> From<TransactError<E>> for NotDecided<E> {
    fn from(error: TransactError<E>) -> Self {
        Self::End(Err(error))
    }
}

impl<D: Decide> Transaction<'_, D> {
    /// Decides on one state, or completes the decision that is `ready`. Reduces the response if the full one does not fit.
    pub(super) fn decide(&self, before: &Folded, ready: Option<Drafted>) -> Result<Decision, NotDecided<D::Error>> {
        let (stream, commands, involved, holders) = (self.stream, self.commands, &self.others.known, &self.holders);
        let EventStream { store, key, .. } = stream;
        let TransactOptions { expected_version, idempotency, .. } = *self.options;
        let (version, now) = (before.version(), store.now());
        let decide = || {
            let in_flight = store.in_flight.begin(&store.clock);
            commands.decide(before, involved).map(|decided| Drafted { decided, in_flight })
        };
        let Drafted { decided, in_flight } = ready.map_or_else(decide, Ok).map_err(|undecided| match undecided {
            Undecided::Needs(needs) => NotDecided::Needs(needs),
            Undecided::Error(error) => TransactError::Decide(error).into(),
        })?;
        if let Some(expected) = expected_version.filter(|&expected| expected != version) {
            return Err(TransactError::Conflict { expected, actual: version }.into());
        }
        let has_events =
            !decided.own.events.is_empty() || decided.others.iter().any(|(_, other)| !other.events.is_empty());
        let mut detail = ResponseDetail::Full;
        loop {
            let response = commands.respond(before, &decided, detail).map_err(TransactError::Decide)?;
            if !has_events && idempotency.is_none() {
                return Err(NotDecided::End(Ok(Transacted::Decided(response))));
            }
            let stored = idempotency.map(|_| &*response.body);
            let subjects = subjects(key, &decided, stored);
            if subjects.len() > MAX_SUBJECTS {
                let source = format!("it is about {} subjects, the maximum is {MAX_SUBJECTS}", subjects.len()).into();
                let error = StoreError::InvalidRequest { doing: "seal personal data", source };
                detail = detail.less().filter(|_| stored.is_some()).ok_or(TransactError::Store(error))?;
                continue;
            }
            let (mut keys, missing) = store.sealing.keys(subjects).map_err(TransactError::from)?;
            if !missing.is_empty() {
                return Err(NotDecided::Keys(missing, Box::new(Drafted { decided, in_flight })));
            }
            let forgotten = parts(key, &decided).filter(|(_, part)| part.forgets);
            let forgotten: Vec<_> = forgotten.map(|(key, _)| key.clone()).collect();
            if !commands.drops_forgotten()
                && let Some(subject) = subject_that_was_forgotten(key, &decided, &keys)
            {
                return Err(TransactError::Forgotten { subject }.into());
            }
            keys.extend(forgotten.iter().map(|key| (key.to_string(), SubjectKey::Forgotten)));
            let to_store =
                idempotency.map(|idempotency| ResponseToStore { idempotency, response: response.clone(), now });
            match stream.joint_batch(&decided, to_store.as_ref(), involved, holders, &keys, |of| commands.model(of)) {
                Ok(mut batch) => {
                    batch.in_flight = in_flight;
                    if let Some(row) = commands.requires() {
                        let key = (row.item.pk.clone(), row.item.sk.clone());
                        let required = batch.require(&key, row.check(store.table_name()));
                        required.map_err(|limit| TransactError::TooLarge { limit, of: None })?;
                    }
                    let loaded = |Decided { after, state, .. }| Loaded { folded: after, state };
                    let others = decided.others.into_iter().filter(|(_, other)| !other.events.is_empty());
                    let others = others.map(|(key, other)| (key, loaded(other))).collect();
                    let outcome = Outcome { after: loaded(decided.own), others, forgotten, response };
                    return Ok(Decision { batch, outcome });
                }
                Err(NotBuilt::TooLarge(limit, of)) => {
                    let is_for_the_response = match limit {
                        TooLarge::Response { .. } => true,
                        TooLarge::Transaction { .. } => idempotency.is_some(),
                        TooLarge::Item { .. } | TooLarge::Items { .. } => false,
                    };
                    let less = detail.less().filter(|_| is_for_the_response);
                    detail = less.ok_or(TransactError::TooLarge { limit, of })?;
                }
                Err(NotBuilt::ClaimTaken { claim, holder }) => {
                    return Err(TransactError::ClaimTaken { claim, holder }.into());
                }
                Err(NotBuilt::Store(error)) => return Err(TransactError::from(error).into()),
            }
        }
    }
}

/// The subjects of the personal values of a decision and the response to store, and the stack for its claims.
fn subjects(key: &AggregateKey, decided: &Decisions, response: Option<&str>) -> BTreeSet<String> {
    let claims = parts(key, decided).filter_map(|(_, part)| stack_key_for(&part.claims));
    let events = parts(key, decided).flat_map(|(_, part)| &part.events).map(|event| event.data.text());
    events.chain(response).flat_map(personal::subjects).chain(claims).collect()
}

/// A subject of the events of a decision that was forgotten before, and is not forgotten again by the decision.
fn subject_that_was_forgotten(key: &AggregateKey, decided: &Decisions, keys: &Keys) -> Option<String> {
    let events = parts(key, decided).flat_map(|(_, part)| &part.events);
    let mut subjects = events.flat_map(|event| personal::subjects(event.data.text()));
    let forgets = |subject: &str| parts(key, decided).any(|(key, part)| part.forgets && key.to_string() == subject);
    subjects.find(|subject| matches!(keys.get(subject), Some(SubjectKey::Forgotten)) && !forgets(subject))
}

/// The aggregates of a decision, each with its part.
fn parts<'a>(key: &'a AggregateKey, decided: &'a Decisions) -> impl Iterator<Item = (&'a AggregateKey, &'a Decided)> {
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
