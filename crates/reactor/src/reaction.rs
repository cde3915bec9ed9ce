//! The decision on what an aggregate gets from the reactor: the command of a deadline, or commands whose outcome is stored; and
//! what follows if that fails: it is tried again, or given up.

use daybook_decider::joint::{decide, decide_due};
use daybook_decider::{
    Addressed, AggregateKey, Caller, CommandError, CommandRejection, CommandRequest, DecisionInput, Decisions,
    DomainRejection, Folded, Involved, JointError, Meta, Model, Registry,
};
use daybook_event_store::{
    CommandResponse, Decide, EventStore, ResponseDetail, StoreError, StoredDeadline, TransactError, Undecided,
};
use daybook_function_runtime::with_causes;
use jiff::{SignedDuration, Timestamp};

use crate::reactor::Reactor;

/// How long something cannot be done before it is given up: a deadline is marked as failed, a process is suspended. Meanwhile, a
/// deployment that causes the failure can be rolled back. A message comes again after three minutes, the fourth time after twelve.
const GIVE_UP_AFTER: SignedDuration = SignedDuration::from_mins(11);

/// What an aggregate shall decide because of a row or an event: that the deadline `hold` of `reservation/7` is due, for example.
pub(crate) struct Reaction<'a> {
    pub(crate) registry: &'a Registry,
    pub(crate) store: &'a EventStore,
    pub(crate) to: &'a AggregateKey,
    pub(crate) asked: Asked<'a>,
    /// The name of the row for which it is decided, if that is one of the aggregate.
    pub(crate) row: Option<&'a str>,
    /// The row of the dispatch, which another aggregate has.
    pub(crate) dispatch: Option<&'a StoredDeadline>,
    pub(crate) meta: Meta,
}

pub(crate) enum Asked<'a> {
    /// The command that the state declares for the deadline of the row, which has this time.
    Due(Timestamp),
    /// These commands. A rejection is an outcome, too.
    Commands(&'a [CommandRequest]),
    /// Nothing: the outcome is this rejection.
    Rejected(DomainRejection),
}

/// The status of a response if the state does not declare the row any more, so that the append has deleted it.
pub(crate) const GONE: u16 = 200;

/// The status if the state still declares the row.
const DECLARED: u16 = 202;

/// The status of a rejection, which is the body. Other responses have none.
const REJECTED: u16 = 422;

/// Why nothing is appended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotDecided {
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
    #[error("the system may not send {command} to {to}: allow it in authorize, with caller.is_system()")]
    Forbidden { command: String, to: AggregateKey },
    #[error("its command cannot be decided: {0}")]
    Undecidable(JointError),
}

impl Reaction<'_> {
    /// Whether the outcome is stored under the idempotency key in any case.
    fn stores_outcome(&self) -> bool {
        !matches!(self.asked, Asked::Due(_))
    }

    /// The rejection, if the aggregate, or one to which its decision sends a command, does not exist, is deleted, or exists and should
    /// be created.
    fn rejection(&self, error: &JointError) -> Option<DomainRejection> {
        let about = error.aggregate.as_deref().unwrap_or(self.to);
        error.error.rejection().map(|name| DomainRejection::new(name, format!("{about}: {error}")))
    }

    fn decide(&self, before: &Folded, input: &DecisionInput) -> Result<Result<Decisions, JointError>, NotDecided> {
        Ok(match &self.asked {
            Asked::Due(due) if input.now < *due => return Err(NotDecided::Early),
            Asked::Due(due) => {
                let deadline = (self.row.unwrap_or_default(), *due);
                let decided = decide_due(self.registry, self.to, before, deadline, input);
                match decided.ok_or(NotDecided::NotDeclared)? {
                    Err(error) if let Some(rejection) = self.rejection(&error) => {
                        return Err(NotDecided::Rejected(rejection.detail));
                    }
                    decided => decided,
                }
            }
            Asked::Commands(commands) => decide(self.registry, before, &[Addressed::new(self.to, commands)], input)
                .or_else(|error| match self.rejection(&error) {
                    Some(rejection) => Decisions::rejected(self.registry, self.to, before, rejection),
                    None => Err(error),
                }),
            Asked::Rejected(rejection) => Decisions::rejected(self.registry, self.to, before, rejection.clone()),
        })
    }
}

impl Decide for Reaction<'_> {
    type Error = NotDecided;

    fn decide(&self, before: &Folded, involved: &Involved) -> Result<Decisions, Undecided<NotDecided>> {
        let input = self.store.decision_input(self.meta.clone(), Caller::system());
        match Self::decide(self, before, &DecisionInput { involved: involved.clone(), ..input })? {
            Err(JointError { error: CommandError::Needs(needs), .. }) => Err(Undecided::Needs(needs)),
            Err(JointError { error: CommandError::Forbidden { command, .. }, .. }) => {
                Err(NotDecided::Forbidden { command, to: self.to.clone() }.into())
            }
            Err(error) => Err(NotDecided::Undecidable(error).into()),
            Ok(decisions) => Ok(decisions),
        }
    }

    fn model(&self, aggregate_type: &str) -> Option<&dyn Model> {
        self.registry.get(aggregate_type)
    }

    /// Nobody would correct the command. Values from before their fields were personal are left out too.
    fn drops_forgotten(&self) -> bool {
        true
    }

    fn requires(&self) -> Option<&StoredDeadline> {
        self.dispatch
    }

    fn respond(&self, _: &Folded, decided: &Decisions, _: ResponseDetail) -> Result<CommandResponse, NotDecided> {
        let Decisions { own, others, .. } = decided;
        let has_events = !own.events.is_empty() || others.iter().any(|(_, other)| !other.events.is_empty());
        let response = |status, body| CommandResponse { status, version: own.after.version(), state_version: 0, body };
        match &own.rejection {
            Some(DomainRejection { name, detail, .. }) if self.stores_outcome() => {
                let rejection = CommandRejection { name: (*name).to_owned(), detail: detail.clone() };
                return Ok(response(REJECTED, serde_json::to_string(&rejection).unwrap_or_default()));
            }
            Some(rejection) if !has_events => return Err(NotDecided::Rejected(rejection.detail.clone())),
            None if !has_events && !self.stores_outcome() => return Err(NotDecided::NoEffect),
            _ => {}
        }
        let is_row = |name: &String| Some(&**name) == self.row;
        let is_gone =
            own.deadlines.dropped.iter().any(is_row) || own.deadlines.set.iter().any(|(name, _)| is_row(name));
        Ok(response(if is_gone { GONE } else { DECLARED }, String::new()))
    }
}

pub(crate) fn rejection_of(response: &CommandResponse) -> Result<Option<CommandRejection>, serde_json::Error> {
    (response.status == REJECTED).then(|| serde_json::from_str(&response.body)).transpose()
}

#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// It may be done later: the table is not available, or other writers are faster.
    Transient(String),
    /// Another release can do it, which runs beside this one. It does not count as failed: it would end the deployment of the new
    /// release, if that lacks what the other one has set.
    OtherRelease(String),
    /// It cannot be done while the code and the data are as they are.
    Permanent(String),
}

impl Reactor {
    /// Whether what has failed since this time is given up now, or tried again; `None` without a time: this is its first failure.
    pub(crate) fn gives_up(&self, failing_since: Option<&str>) -> Option<bool> {
        let since: Timestamp = failing_since?.parse().ok()?;
        Some(self.store.now().duration_since(since) >= GIVE_UP_AFTER)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let text = with_causes(&error);
        match error {
            StoreError::Unavailable { .. } | StoreError::Newer { .. } | StoreError::InvalidRequest { .. } => {
                Self::Transient(text)
            }
            StoreError::Corrupt { .. } | StoreError::Panicked { .. } => Self::Permanent(text),
        }
    }
}

impl From<TransactError<NotDecided>> for Failure {
    fn from(error: TransactError<NotDecided>) -> Self {
        let text = with_causes(&error);
        match error {
            TransactError::Store(error) => error.into(),
            TransactError::Contended | TransactError::OutcomeUnknown { .. } | TransactError::RowChanged => {
                Self::Transient(text)
            }
            TransactError::Decide(reason) => Self::Permanent(with_causes(&reason)),
            TransactError::Conflict { .. }
            | TransactError::KeyReused
            | TransactError::ClaimTaken { .. }
            | TransactError::Forgotten { .. }
            | TransactError::TooLarge { .. } => Self::Permanent(text),
        }
    }
}
