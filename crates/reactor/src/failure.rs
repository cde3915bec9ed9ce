//! Why something could not be done, and what follows.

use daybook_event_store::{StoreError, TransactError};
use daybook_function_runtime::with_causes;
use jiff::{SignedDuration, Timestamp};

use crate::reaction::NotDecided;
use crate::reactor::Reactor;

/// How long something cannot be done before it is given up: a deadline is marked as failed, a position is suspended. Meanwhile, a
/// deployment that causes the failure can be rolled back. A message comes again after three minutes, the fourth time after twelve.
pub(crate) const GIVE_UP_AFTER: SignedDuration = SignedDuration::from_mins(11);

#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// It may be done later: the table is not available, other writers are faster, or a deployment is in progress.
    Transient(String),
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
