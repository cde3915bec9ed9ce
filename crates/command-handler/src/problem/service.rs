//! Problems of the service: it could not do what was right to ask.

use axum::http::StatusCode;

use super::response::{Problem, ProblemType};

pub(crate) const INTERNAL: ProblemType = ProblemType {
    slug: "internal",
    status: StatusCode::INTERNAL_SERVER_ERROR,
    title: "Internal error",
    description: "an error of the service",
    example: |_| internal("an example"),
};

pub(crate) fn internal(cause: impl ToString) -> Problem {
    let problem = Problem::new(&INTERNAL, "the service failed; its log says why");
    Problem { cause: Some(cause.to_string()), ..problem }
}

pub(crate) const UNAVAILABLE: ProblemType = ProblemType {
    slug: "unavailable",
    status: StatusCode::SERVICE_UNAVAILABLE,
    title: "Unavailable",
    description: "the table is not available; a write may have happened, so repeat it under its `Idempotency-Key`",
    example: |_| unavailable("an example"),
};

pub(crate) fn unavailable(cause: impl Into<String>) -> Problem {
    let problem = Problem::new(&UNAVAILABLE, "the table is not available at the moment; try again");
    Problem { cause: Some(cause.into()), ..problem }
}

pub(crate) const NEWER_RELEASE: ProblemType = ProblemType {
    slug: "newer-release",
    status: StatusCode::SERVICE_UNAVAILABLE,
    title: "Newer release",
    description: "during the deployment of a new release, an instance of the old release read an event that the new \
                  release wrote; nothing was written",
    example: |_| newer_release("an example"),
};

pub(crate) fn newer_release(cause: impl Into<String>) -> Problem {
    let detail = "a newer release of the service wrote this, and another instance may be able to read it; try again";
    Problem { cause: Some(cause.into()), ..Problem::new(&NEWER_RELEASE, detail) }
}

pub(crate) const CONTENDED: ProblemType = ProblemType {
    slug: "contended",
    status: StatusCode::SERVICE_UNAVAILABLE,
    title: "Contended",
    description: "other writers were faster until the time was up; nothing was written",
    example: |_| contended(),
};

pub(crate) fn contended() -> Problem {
    Problem::new(&CONTENDED, "other writers were faster until the time was up; nothing was written, try again")
}
