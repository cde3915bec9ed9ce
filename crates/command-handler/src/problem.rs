//! Errors as `application/problem+json` (RFC 9457): a stable `type`, and no internal text.
//!
//! Each type of problem is defined once, as a [`ProblemType`], next to the function that writes its details. A new type
//! needs this definition, and an entry in the problems of the endpoints that return it; the OpenAPI document takes it
//! from there.
//!
//! At the end of this file is the problem for each error of the store and of an aggregate. In reading order:
//! - `response`: a problem as a response, and its line in the log.
//! - `request`, `aggregate`, `service`: the types, by what is wrong.

mod aggregate;
mod request;
mod response;
mod service;
#[cfg(test)]
mod tests;

use daybook_decider::CommandError;
use daybook_event_store::{StoreError, TransactError};
use daybook_table::AggregateKey;

pub(crate) use self::aggregate::*;
pub(crate) use self::request::*;
pub use self::response::cause;
pub(crate) use self::response::{ExtensionMembers, PROBLEM_JSON, Problem, ProblemType, log_problem};
pub(crate) use self::service::*;

/// The problems that can be about one command of an array, whose position is then in `index`, and about one of several
/// aggregates, which is then in `aggregate`.
pub(crate) const ABOUT_A_COMMAND: [&ProblemType; 13] = [
    &UNKNOWN_COMMAND,
    &INVALID_COMMAND,
    &FORBIDDEN,
    &COMMAND_REJECTED,
    &ALREADY_EXISTS,
    &DELETED,
    &NOT_FOUND,
    &VERSION_CONFLICT,
    &IF_MATCH_REQUIRED,
    &TOO_LARGE,
    &BAD_BODY,
    &BAD_ID,
    &UNKNOWN_TYPE,
];

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        let cause = daybook_function_runtime::with_causes(&error);
        match error {
            StoreError::Unavailable { .. } => unavailable(cause),
            StoreError::Newer { .. } => newer_release(cause),
            StoreError::Corrupt { .. } | StoreError::Panicked { .. } | StoreError::InvalidRequest { .. } => {
                internal(cause)
            }
        }
    }
}

impl Problem {
    /// The problem of a command that does not reach the rules of an aggregate at `version`.
    pub(crate) fn of_command(error: &CommandError, version: u64) -> Self {
        let reason = error.to_string();
        match error {
            CommandError::Unknown { .. } => Self::new(&UNKNOWN_COMMAND, reason),
            CommandError::Invalid { .. } => Self::new(&INVALID_COMMAND, reason),
            CommandError::Forbidden { command, .. } => forbidden(format_args!("Command({command})")),
            CommandError::Missing => Self::of(&NOT_FOUND),
            CommandError::Exists { .. } => already_exists(version),
            CommandError::Deleted => Self::of(&DELETED),
            CommandError::CreatedTwice { .. } => Self::new(&ALREADY_EXISTS, reason),
            CommandError::AfterDeletion { .. } => Self::new(&DELETED, reason),
            CommandError::TooMany | CommandError::TooLarge | CommandError::TooManyInvolved => {
                Self::new(&TOO_LARGE, reason)
            }
            CommandError::Panicked(_) | CommandError::Unwritable { .. } | CommandError::Needs(_) => internal(reason),
        }
    }

    pub(crate) fn of_write(error: TransactError<Self>, key: &AggregateKey) -> Self {
        match error {
            TransactError::Decide(problem) => problem,
            TransactError::Conflict { expected, actual } => version_conflict(expected, actual),
            TransactError::KeyReused => Self::of(&KEY_REUSED),
            TransactError::ClaimTaken { claim, .. } => claim_taken(claim.name(), None),
            TransactError::Forgotten { subject } => subject_forgotten(&subject),
            // No request requires a row.
            TransactError::Contended | TransactError::RowChanged => Self::of(&CONTENDED),
            TransactError::OutcomeUnknown { of, after, has_key, source } => {
                let cause = daybook_function_runtime::with_causes(source.as_ref());
                outcome_unknown(Some((of.as_ref().unwrap_or(key), after)), has_key, cause)
            }
            TransactError::TooLarge { limit, of } => {
                Self { aggregate: of.map(Box::new), ..Self::new(&TOO_LARGE, limit.to_string()) }
            }
            TransactError::Store(error) => error.into(),
        }
    }
}
