//! The kinds of problem: what a client matches on, each with its one status.

use axum::http::StatusCode;

/// What stands in a problem's `type`. Stable: a kind is never given another name, status or meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    MalformedJson,
    BadId,
    BadQuery,
    BadHeader,
    UnknownRoute,
    UnknownType,
    UnknownEventType,
    NotFound,
    NoSuchVersion,
    MethodNotAllowed,
    VersionConflict,
    AlreadyExists,
    Deleted,
    TooLarge,
    NotJson,
    BadBody,
    UnknownCommand,
    InvalidCommand,
    Refused,
    KeyReused,
    IfMatchRequired,
    Internal,
    Unavailable,
    NewerRelease,
    Contended,
}

/// What is always told of a kind.
struct Told {
    status: StatusCode,
    slug: &'static str,
    title: &'static str,
    when: &'static str,
}

impl Kind {
    /// All of them, by status.
    pub(crate) const ALL: [Self; 25] = [
        Self::MalformedJson,
        Self::BadId,
        Self::BadQuery,
        Self::BadHeader,
        Self::UnknownRoute,
        Self::UnknownType,
        Self::UnknownEventType,
        Self::NotFound,
        Self::NoSuchVersion,
        Self::MethodNotAllowed,
        Self::VersionConflict,
        Self::AlreadyExists,
        Self::Deleted,
        Self::TooLarge,
        Self::NotJson,
        Self::BadBody,
        Self::UnknownCommand,
        Self::InvalidCommand,
        Self::Refused,
        Self::KeyReused,
        Self::IfMatchRequired,
        Self::Internal,
        Self::Unavailable,
        Self::NewerRelease,
        Self::Contended,
    ];

    fn told(self) -> Told {
        use StatusCode as S;
        let told = |status, slug, title, when| Told { status, slug, title, when };
        match self {
            Self::MalformedJson => told(
                S::BAD_REQUEST,
                "malformed-json",
                "Malformed JSON",
                "the body is not well-formed JSON, or nests deeper than 100 levels",
            ),
            Self::BadId => {
                told(S::BAD_REQUEST, "bad-id", "Bad id", "the id has characters or a length that ids do not")
            }
            Self::BadQuery => {
                told(S::BAD_REQUEST, "bad-query", "Bad query", "a query parameter is unknown, missing or out of range")
            }
            Self::BadHeader => told(
                S::BAD_REQUEST,
                "bad-header",
                "Bad header",
                "a header cannot be understood, comes twice or does not go with the call",
            ),
            Self::UnknownRoute => told(S::NOT_FOUND, "unknown-route", "Unknown route", "there is nothing at this path"),
            Self::UnknownType => {
                told(S::NOT_FOUND, "unknown-type", "Unknown aggregate type", "there is no such aggregate type")
            }
            Self::UnknownEventType => {
                told(S::NOT_FOUND, "unknown-event-type", "Unknown event type", "no aggregate has such an event")
            }
            Self::NotFound => told(S::NOT_FOUND, "not-found", "Not found", "there is no such aggregate"),
            Self::NoSuchVersion => {
                told(S::NOT_FOUND, "no-such-version", "No such version", "the aggregate has no such version")
            }
            Self::MethodNotAllowed => told(
                S::METHOD_NOT_ALLOWED,
                "method-not-allowed",
                "Method not allowed",
                "the resource does not take this method",
            ),
            Self::VersionConflict => told(
                S::CONFLICT,
                "version-conflict",
                "Version conflict",
                "the aggregate is at another version than `If-Match` says; load it, merge and try again",
            ),
            Self::AlreadyExists => {
                told(S::CONFLICT, "already-exists", "Already exists", "an aggregate with this id exists or existed")
            }
            Self::Deleted => told(S::GONE, "deleted", "Deleted", "the aggregate was deleted; its events can be read"),
            Self::TooLarge => told(
                S::PAYLOAD_TOO_LARGE,
                "too-large",
                "Too large",
                "the body, an event, the events together or the answer would be larger than can be stored or passed on",
            ),
            Self::NotJson => {
                told(S::UNSUPPORTED_MEDIA_TYPE, "not-json", "Not JSON", "the body is not declared to be JSON")
            }
            Self::BadBody => {
                told(S::UNPROCESSABLE_ENTITY, "bad-body", "Wrong fields", "the body is JSON of another shape")
            }
            Self::UnknownCommand => {
                told(S::UNPROCESSABLE_ENTITY, "unknown-command", "Unknown command", "the type has no such command")
            }
            Self::InvalidCommand => {
                told(S::UNPROCESSABLE_ENTITY, "invalid-command", "Wrong fields", "the data does not fit the command")
            }
            Self::Refused => told(
                S::UNPROCESSABLE_ENTITY,
                "refused",
                "Refused",
                "the rules of the aggregate refuse; `rejection` says which",
            ),
            Self::KeyReused => told(
                S::UNPROCESSABLE_ENTITY,
                "key-reused",
                "Idempotency key reused",
                "the `Idempotency-Key` was used for another request",
            ),
            Self::IfMatchRequired => told(
                S::PRECONDITION_REQUIRED,
                "if-match-required",
                "If-Match required",
                "this deployment wants `If-Match` with every write to an aggregate that exists",
            ),
            Self::Internal => told(S::INTERNAL_SERVER_ERROR, "internal", "Internal error", "a fault of the service"),
            Self::Unavailable => told(
                S::SERVICE_UNAVAILABLE,
                "unavailable",
                "Unavailable",
                "the table is not available; a write may have happened, so repeat it under its `Idempotency-Key`",
            ),
            Self::NewerRelease => told(
                S::SERVICE_UNAVAILABLE,
                "newer-release",
                "Newer release",
                "while a new release of the service is put live, an instance of the old one met what the new one wrote; \
                 nothing was written",
            ),
            Self::Contended => told(
                S::SERVICE_UNAVAILABLE,
                "contended",
                "Contended",
                "other writers were faster until the time was up; nothing was written",
            ),
        }
    }

    /// The one status that it comes with.
    pub(crate) fn status(self) -> StatusCode {
        self.told().status
    }

    /// The `type`.
    pub(crate) fn urn(self) -> String {
        format!("urn:daybook:problem:{}", self.told().slug)
    }

    /// The `title`.
    pub(crate) fn title(self) -> &'static str {
        self.told().title
    }

    /// When it comes, for the document.
    pub(crate) fn when(self) -> &'static str {
        self.told().when
    }
}
