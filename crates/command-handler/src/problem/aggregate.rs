//! Problems of the aggregate: its state or its rules do not allow the request.

use axum::http::StatusCode;
use daybook_decider::DomainRejection;
use daybook_table::AggregateKey;

use super::response::{ExtensionMembers, Problem, ProblemType};

pub(crate) const EXAMPLE_VERSION: u64 = 3;

pub(crate) const NOT_FOUND: ProblemType =
    ProblemType::new(("not-found", StatusCode::NOT_FOUND, "Not found"), "there is no such aggregate", |_| {
        Problem::of(&NOT_FOUND)
    });

pub(crate) const NO_SUCH_ROW: ProblemType = ProblemType::new(
    ("no-such-row", StatusCode::NOT_FOUND, "No such row"),
    "the view has no row with this key",
    |_| Problem::of(&NO_SUCH_ROW),
);

pub(crate) const FORBIDDEN: ProblemType = ProblemType::new(
    ("forbidden", StatusCode::FORBIDDEN, "Forbidden"),
    "the rules of the aggregate type, or of the view, do not allow the caller to do this",
    |_| forbidden("an example"),
);

/// The cause names what was checked.
pub(crate) fn forbidden(checked: impl ToString) -> Problem {
    let problem = Problem::new(&FORBIDDEN, "the caller may not do this");
    Problem { cause: Some(checked.to_string().into()), ..problem }
}

pub(crate) const NO_SUCH_VERSION: ProblemType = ProblemType::new(
    ("no-such-version", StatusCode::NOT_FOUND, "No such version"),
    "the aggregate has no such version",
    |_| no_such_version(EXAMPLE_VERSION + 1, EXAMPLE_VERSION),
);

/// The event that a view must show does not exist.
pub(crate) fn no_such_event(key: &AggregateKey, seq_num: u64) -> Problem {
    Problem::new(&NO_SUCH_VERSION, format!("{key} has no event {seq_num}"))
}

pub(crate) fn no_such_version(version: u64, current: u64) -> Problem {
    Problem::new(&NO_SUCH_VERSION, format!("there is no version {version}; versions go from 1 to {current}"))
}

pub(crate) const VERSION_CONFLICT: ProblemType = ProblemType::new(
    ("version-conflict", StatusCode::CONFLICT, "Version conflict"),
    "the aggregate has another version than `If-Match`; load it, merge and try again",
    |_| version_conflict(EXAMPLE_VERSION - 1, EXAMPLE_VERSION),
);

pub(crate) fn version_conflict(expected: u64, actual: u64) -> Problem {
    let detail = match actual {
        0 => "and there is no such aggregate: create it without If-Match".to_owned(),
        _ => format!("the aggregate is at {actual}: load it, merge and try again"),
    };
    let problem = Problem::new(&VERSION_CONFLICT, format!("If-Match says version {expected}, {detail}"));
    Problem {
        extension: Some(ExtensionMembers::Versions { expected, actual }.into()),
        version: Some(actual),
        ..problem
    }
}

pub(crate) const ALREADY_EXISTS: ProblemType = ProblemType::new(
    ("already-exists", StatusCode::CONFLICT, "Already exists"),
    "an aggregate with this id exists or existed; ids are used once",
    |_| already_exists(EXAMPLE_VERSION),
);

pub(crate) fn already_exists(version: u64) -> Problem {
    Problem { version: Some(version), ..Problem::of(&ALREADY_EXISTS) }
}

pub(crate) const CLAIM_TAKEN: ProblemType = ProblemType::new(
    ("claim-taken", StatusCode::CONFLICT, "Claim taken"),
    "a value belongs to another aggregate; `claim` is its name. `holder` is that aggregate, `type/id`, if the \
                  caller may read it",
    |_| claim_taken("personal-email", Some("customer/1".to_owned())),
);

pub(crate) fn claim_taken(claim: &str, holder: Option<String>) -> Problem {
    let detail = format!("another aggregate has this value of {claim}");
    let extension = ExtensionMembers::Claim { claim: claim.to_owned(), holder };
    Problem { extension: Some(extension.into()), ..Problem::new(&CLAIM_TAKEN, detail) }
}

pub(crate) const SUBJECT_FORGOTTEN: ProblemType = ProblemType::new(
    ("subject-forgotten", StatusCode::CONFLICT, "Subject forgotten"),
    "the command would store a new personal value about a subject that is forgotten; send it without that value",
    |_| subject_forgotten("customer/2"),
);

pub(crate) fn subject_forgotten(subject: &str) -> Problem {
    Problem::new(
        &SUBJECT_FORGOTTEN,
        format!("{subject} was forgotten: send the command without personal data about it"),
    )
}

pub(crate) const DELETED: ProblemType = ProblemType::new(
    ("deleted", StatusCode::GONE, "Deleted"),
    "the aggregate was deleted; its events can be read",
    |_| Problem::of(&DELETED),
);

pub(crate) const COMMAND_REJECTED: ProblemType = ProblemType::new(
    ("refused", StatusCode::UNPROCESSABLE_ENTITY, "Refused"),
    "a rule of the aggregate rejects the command; `rejection` is the name of the rejection. `detail` contains \
                  the reason only if the caller may read the aggregate",
    |_| {
        let detail = "the balance would be -1001, it may not go below -1000".to_owned();
        command_rejected(
            DomainRejection { name: "InsufficientFunds", detail, index: 0, by: None },
            EXAMPLE_VERSION,
            true,
        )
    },
);

/// `version` is the version of the aggregate after the events that record the rejection.
pub(crate) fn command_rejected(rejection: DomainRejection, version: u64, shows_reason: bool) -> Problem {
    let extension = Some(ExtensionMembers::Rejection { rejection: rejection.name }.into());
    let detail = if shows_reason { rejection.detail } else { "a rule of the aggregate rejects the command".to_owned() };
    Problem { extension, version: Some(version), ..Problem::new(&COMMAND_REJECTED, detail) }
}
