//! Problems of the service: it failed to execute a correct request.

use axum::http::StatusCode;
use daybook_table::AggregateKey;

use super::aggregate::EXAMPLE_VERSION;
use super::response::{ExtensionMembers, Problem, ProblemType};

pub(crate) const INTERNAL: ProblemType = ProblemType::new(
    ("internal", StatusCode::INTERNAL_SERVER_ERROR, "Internal error"),
    "an error of the service",
    |_| internal("an example"),
);

pub(crate) fn internal(cause: impl ToString) -> Problem {
    let problem = Problem::new(&INTERNAL, "the service failed; its log contains the reason");
    Problem { cause: Some(cause.to_string().into()), ..problem }
}

pub(crate) const UNAVAILABLE: ProblemType = ProblemType::new(
    ("unavailable", StatusCode::SERVICE_UNAVAILABLE, "Unavailable"),
    "the table is not available; nothing was written",
    |_| unavailable("an example"),
);

pub(crate) fn unavailable(cause: impl Into<Box<str>>) -> Problem {
    let problem = Problem::new(&UNAVAILABLE, "the table is not available at the moment; try again");
    Problem { cause: Some(cause.into()), ..problem }
}

pub(crate) const OUTCOME_UNKNOWN: ProblemType = ProblemType::new(
    ("outcome-unknown", StatusCode::SERVICE_UNAVAILABLE, "Outcome unknown"),
    "the write may have happened or not, because the table did not respond in time; `detail` describes \
                  how to find out. `Retry-After` is sent only if the request has an `Idempotency-Key`, because only \
                  then is a repetition safe",
    |_| outcome_unknown(Some((&AggregateKey::new("todo", "coffee"), EXAMPLE_VERSION)), false, "an example"),
);

/// `decided_on` is the aggregate with the version that the write was decided on, if it was decided.
pub(crate) fn outcome_unknown(
    decided_on: Option<(&AggregateKey, u64)>,
    has_key: bool,
    cause: impl Into<Box<str>>,
) -> Problem {
    let check = match decided_on {
        _ if has_key => "send it again with the same Idempotency-Key, and it happens once".to_owned(),
        Some((key, after)) => {
            format!("wait 5 seconds, then GET /{key}/events?after={after} lists its events if it did")
        }
        None => "wait 5 seconds, then read the events of the aggregate".to_owned(),
    };
    let detail = format!("it is not known whether the write happened: {check}");
    Problem { cause: Some(cause.into()), is_repeatable: has_key, ..Problem::new(&OUTCOME_UNKNOWN, detail) }
}

pub(crate) const NEWER_RELEASE: ProblemType = ProblemType::new(
    ("newer-release", StatusCode::SERVICE_UNAVAILABLE, "Newer release"),
    "during the deployment of a new release, an instance of the old release read an event that the new \
                  release wrote; nothing was written",
    |_| newer_release("an example"),
);

pub(crate) fn newer_release(cause: impl Into<Box<str>>) -> Problem {
    let detail = "a newer release of the service wrote this, and another instance may be able to read it; try again";
    Problem { cause: Some(cause.into()), ..Problem::new(&NEWER_RELEASE, detail) }
}

pub(crate) const CONTENDED: ProblemType = ProblemType::new(
    ("contended", StatusCode::SERVICE_UNAVAILABLE, "Contended"),
    "other writers were faster until the time of the request was up; nothing was written, try again",
    |_| Problem::of(&CONTENDED),
);

pub(crate) const BEHIND: ProblemType = ProblemType::new(
    ("behind", StatusCode::SERVICE_UNAVAILABLE, "Behind"),
    "the view does not show the event that `seen` names yet; `seqNum` is the last event of this aggregate \
                  that it shows. If `suspended` is true, it shows the next one only after an operator has resumed it",
    |_| behind(&AggregateKey::new("order", "123"), 4, EXAMPLE_VERSION, false),
);

/// The view shows the events of the aggregate up to `reached`, and not up to `asked`.
pub(crate) fn behind(key: &AggregateKey, asked: u64, reached: u64, suspended: bool) -> Problem {
    let then = if suspended { "an operator must resume it" } else { "try again" };
    let detail = format!("the view shows {key} up to event {reached}, not yet event {asked}; {then}");
    Problem {
        extension: Some(ExtensionMembers::Behind { seq_num: reached, suspended }.into()),
        ..Problem::new(&BEHIND, detail)
    }
}
