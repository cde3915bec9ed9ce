//! The caller's part of a transaction: what it decides, the options, and the results.

use std::time::Duration;

use daybook_decider::{AggregateKey, Claim, Decisions, Folded, Involved, Model, Need};
use tokio::time::Instant;

use crate::deadlines::StoredDeadline;
use crate::error::{Cause, StoreError};
use crate::idempotency::{CommandResponse, IdempotencyKey};
use crate::limits::TooLarge;
use crate::load::LoadPolicy;

/// The caller's part of a transaction. Its methods are called again, with another state, whenever an attempt is
/// repeated.
pub trait Decide {
    type Error;

    /// Decides what to append to the aggregate at `before`, and to others. Every call uses a new time and new ids.
    fn decide(&self, before: &Folded, involved: &Involved) -> Result<Decisions, Undecided<Self::Error>>;

    /// The type of another aggregate; `None` if there is no such type, or if the decision never involves others.
    fn model(&self, _aggregate_type: &str) -> Option<&dyn Model> {
        None
    }

    /// A row for which it is decided: nothing is appended if it was deleted, set again or marked since it was read. Such a decision
    /// does not share its append.
    fn requires(&self) -> Option<&StoredDeadline> {
        None
    }

    /// Whether values about subjects that are forgotten are left out. Otherwise, they are an error of the caller.
    fn drops_forgotten(&self) -> bool {
        false
    }

    /// Whether the error means that the caller may not send the commands. Such a caller does not learn that another
    /// request has used the idempotency key.
    fn is_forbidden(_error: &Self::Error) -> bool {
        false
    }

    /// The response to the caller if the decision is appended. It is built before the append: a decision without a
    /// response is not appended.
    fn respond(
        &self,
        before: &Folded,
        decided: &Decisions,
        detail: ResponseDetail,
    ) -> Result<CommandResponse, Self::Error>;
}

#[derive(Debug)]
pub enum Undecided<E> {
    /// It needs to know this about other aggregates.
    Needs(Vec<Need>),
    Error(E),
}

impl<E> From<E> for Undecided<E> {
    fn from(error: E) -> Self {
        Self::Error(error)
    }
}

/// The contents of a response. It is reduced when a response is too large to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseDetail {
    Full,
    WithoutState,
    VersionOnly,
}

impl ResponseDetail {
    /// The next smaller detail; `None` for the smallest.
    pub(super) fn less(self) -> Option<Self> {
        match self {
            Self::Full => Some(Self::WithoutState),
            Self::WithoutState => Some(Self::VersionOnly),
            Self::VersionOnly => None,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct TransactOptions<'a> {
    /// Which state a load may start from. With `Incremental`, the first attempt uses the cached state, without a read.
    pub policy: LoadPolicy,
    /// Whether the commands create the aggregate. If they do and no state is cached, the first attempt assumes that the
    /// aggregate does not exist.
    pub creates: bool,
    /// The version that the caller has seen. If the aggregate is at another version, the transaction returns a
    /// conflict. Without an expected version, the commands are decided again on the newer state.
    pub expected_version: Option<u64>,
    pub idempotency: Option<IdempotencyKey<'a>>,
    /// The time until which attempts are repeated. The transaction ends up to [`LAST_CALLS`](Self::LAST_CALLS) later,
    /// because it has to find out the outcome of the last attempt.
    pub deadline: Instant,
}

impl TransactOptions<'_> {
    /// The time after the deadline within which the last attempt ends.
    pub const LAST_ATTEMPT: Duration = Duration::from_millis(500);

    /// The time after the deadline within which the transaction ends: the last attempt, and the read that finds out the
    /// outcome of that attempt.
    pub const LAST_CALLS: Duration = Duration::from_millis(1_200);
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transacted {
    Decided(CommandResponse),
    /// The stored response to the same request. Nothing was appended.
    Replayed(CommandResponse),
}

pub(super) type End<E> = Result<Transacted, TransactError<E>>;

#[derive(Debug, thiserror::Error)]
pub enum TransactError<E> {
    #[error("the commands cannot be decided: {0}")]
    Decide(E),
    /// The aggregate is at another version than the caller has seen.
    #[error("version {expected} was expected, the aggregate is at version {actual}")]
    Conflict { expected: u64, actual: u64 },
    #[error("the idempotency key was used for another request")]
    KeyReused,
    /// Another aggregate has a claim of the decision. Nothing was appended.
    #[error("{holder} has the claim {}", claim.name())]
    ClaimTaken { claim: Claim, holder: AggregateKey },
    /// The personal data of a subject of the decision is forgotten. Nothing was appended.
    #[error("{subject} is forgotten")]
    Forgotten {
        /// `type/id`.
        subject: String,
    },
    /// The row that [`Decide::requires`] returns was deleted, set again or marked. Nothing was appended.
    #[error("the row for which the commands are sent has changed")]
    RowChanged,
    /// Until the deadline, other requests wrote to the aggregate. Nothing was appended.
    #[error("other requests wrote to the aggregate until the deadline")]
    Contended,
    /// The append may have been written; a read could not show whether it was.
    #[error("the outcome of an append after version {after} is unknown")]
    OutcomeUnknown {
        /// The aggregate whose next event shows it, if it is another one than that of the request.
        of: Option<AggregateKey>,
        /// The version that was decided on. The events of the append, if it was written, follow it.
        after: u64,
        /// Whether the request has an idempotency key, so that it can be repeated safely.
        has_key: bool,
        source: Cause,
    },
    #[error("{limit}")]
    TooLarge {
        limit: TooLarge,
        /// The aggregate with whose rows it does, if the request names several, or it is another one than that of the request.
        of: Option<AggregateKey>,
    },
    #[error(transparent)]
    Store(#[from] StoreError),
}
