//! The caller's part of a transaction.

use daybook_decider::{Decisions, Folded, Involved, Model, Need};

use crate::deadlines::StoredDeadline;
use crate::idempotency::CommandResponse;

/// The caller's part of a transaction. Its methods are called again, with another state, whenever an attempt is
/// repeated.
pub trait Decide {
    /// The caller's own error.
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

/// Why there is no decision.
#[derive(Debug)]
pub enum Undecided<E> {
    /// It needs to know this about other aggregates.
    Needs(Vec<Need>),
    /// The caller's own error.
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
