//! Converts errors of the store and of the aggregates into problems.

use daybook_decider::CommandError;
use daybook_event_store::{StoreError, TransactError};
use daybook_table::AggregateKey;

use super::response::{Problem, ProblemType};
use super::{aggregate, request, service};

/// The problems that can be about one command of a batch, whose position is then in `index`.
pub(crate) const ABOUT_A_COMMAND: [&ProblemType; 6] = [
    &request::UNKNOWN_COMMAND,
    &request::INVALID_COMMAND,
    &aggregate::FORBIDDEN,
    &aggregate::COMMAND_REJECTED,
    &aggregate::ALREADY_EXISTS,
    &aggregate::DELETED,
];

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        let cause = daybook_function_runtime::with_causes(&error);
        match error {
            StoreError::Unavailable { .. } => service::unavailable(cause),
            StoreError::Newer { .. } => service::newer_release(cause),
            StoreError::Corrupt { .. } | StoreError::Panicked { .. } | StoreError::InvalidRequest { .. } => {
                service::internal(cause)
            }
        }
    }
}

impl Problem {
    /// The problem of a command that does not reach the rules of an aggregate at `version`.
    pub(crate) fn of_command(error: &CommandError, version: u64) -> Self {
        let reason = error.to_string();
        match error {
            CommandError::Unknown { .. } => Self::new(&request::UNKNOWN_COMMAND, reason),
            CommandError::Invalid { .. } => Self::new(&request::INVALID_COMMAND, reason),
            CommandError::Forbidden { .. } => aggregate::forbidden(),
            CommandError::Missing => aggregate::not_found(),
            CommandError::Exists { .. } => aggregate::already_exists(version),
            CommandError::Deleted => aggregate::deleted(),
            CommandError::CreatedTwice { .. } => Self::new(&aggregate::ALREADY_EXISTS, reason),
            CommandError::AfterDeletion { .. } => Self::new(&aggregate::DELETED, reason),
            CommandError::TooMany | CommandError::TooLarge => Self::new(&request::TOO_LARGE, reason),
            CommandError::Panicked(_) | CommandError::Unwritable { .. } => service::internal(reason),
        }
    }
}

impl Problem {
    /// The problem of a write to an aggregate.
    pub(crate) fn of_write(error: TransactError<Self>, key: &AggregateKey) -> Self {
        match error {
            TransactError::Decide(problem) => problem,
            TransactError::Conflict { expected, actual } => aggregate::version_conflict(expected, actual),
            TransactError::KeyReused => request::key_reused(),
            TransactError::Contended => service::contended(),
            TransactError::OutcomeUnknown { after, has_key, source } => {
                let cause = daybook_function_runtime::with_causes(source.as_ref());
                service::outcome_unknown(Some((key, after)), has_key, cause)
            }
            TransactError::TooLarge(limit) => Self::new(&request::TOO_LARGE, limit.to_string()),
            TransactError::Store(error) => error.into(),
        }
    }
}
