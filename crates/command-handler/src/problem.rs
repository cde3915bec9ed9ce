//! Errors as `application/problem+json` (RFC 9457): a stable `type`, and never an internal text.

mod kind;
#[cfg(test)]
mod tests;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use daybook_decider::{CommandError, DomainRejection};
use daybook_event_store::limits::TooLarge;
use daybook_event_store::{StoreError, TransactError};
use serde::Serialize;

use crate::answer::{PROBLEM, etag};
use crate::api::MAX_BODY;
pub(crate) use kind::Kind;

/// How long a caller should wait when DynamoDB is not available, in seconds.
const RETRY_AFTER: &str = "1";

/// Everything that a request can fail with.
#[derive(Debug)]
pub enum Problem {
    /// The body is not well-formed JSON.
    MalformedJson {
        /// Where and why.
        reason: String,
    },
    /// The body is JSON of another shape than the route takes.
    BadBody {
        /// What is wrong.
        reason: String,
    },
    /// The id has characters that ids do not have.
    BadId {
        /// What was sent.
        id: String,
    },
    /// A query parameter is unknown or out of range.
    BadQuery {
        /// What is wrong.
        reason: String,
    },
    /// A header cannot be understood.
    BadHeader {
        /// Which.
        name: &'static str,
        /// What it should be.
        expected: &'static str,
    },
    /// No such route.
    UnknownRoute {
        /// What was asked for.
        path: String,
    },
    /// No such aggregate type.
    UnknownType {
        /// What was asked for.
        asked: String,
        /// What there is.
        known: Vec<&'static str>,
    },
    /// No such event type.
    UnknownEventType {
        /// What was asked for.
        asked: String,
    },
    /// No such aggregate.
    NotFound,
    /// The aggregate has no such version.
    NoSuchVersion {
        /// What was asked for.
        asked: u64,
        /// The version that it has.
        current: u64,
    },
    /// The route does not take this method.
    MethodNotAllowed {
        /// What was sent.
        method: String,
        /// What the resource takes, where the router does not know.
        allow: Option<String>,
    },
    /// The aggregate type has no command for this verb.
    NoCommandForVerb {
        /// The type.
        type_name: &'static str,
        /// What it has none for.
        verb: &'static str,
        /// The methods that it takes instead.
        allow: String,
    },
    /// The aggregate is at another version than the caller saw.
    Conflict {
        /// What the caller saw.
        expected: u64,
        /// What it is at.
        actual: u64,
    },
    /// The aggregate to create is there.
    AlreadyExists {
        /// The version that it is at.
        version: u64,
    },
    /// The commands would create the aggregate twice.
    CreatedTwice {
        /// Which of them is one too many.
        reason: String,
    },
    /// The aggregate was deleted.
    Deleted,
    /// The commands would go on after they deleted the aggregate.
    AfterDeletion {
        /// Which of them comes too late.
        reason: String,
    },
    /// The body is larger than any transaction.
    BodyTooLarge,
    /// What it would write is larger than DynamoDB takes.
    TooLarge(TooLarge),
    /// The state is larger than Lambda passes on.
    StateTooLarge,
    /// What was to be appended is larger than Lambda passes on.
    AnswerTooLarge,
    /// The body is not declared to be JSON.
    NotJson,
    /// No such command.
    UnknownCommand {
        /// What was asked for, and what there is.
        reason: String,
    },
    /// The command's data does not fit.
    InvalidCommand {
        /// What does not fit, and where.
        reason: String,
    },
    /// The aggregate's rules refuse.
    Refused {
        /// Why.
        refusal: DomainRejection,
        /// The version after what the refusal recorded.
        version: u64,
    },
    /// The idempotency key was used for another request.
    KeyReused,
    /// The version that the caller saw must be given.
    IfMatchRequired,
    /// DynamoDB is throttling or unreachable.
    Unavailable {
        /// For the log.
        cause: String,
    },
    /// A newer release of the service wrote what this one cannot read.
    NewerRelease {
        /// For the log.
        cause: String,
    },
    /// Other writers were faster until the time was up.
    Contended,
    /// A fault of the service.
    Internal {
        /// For the log.
        cause: String,
    },
}

/// The body.
#[derive(Serialize)]
struct Body {
    r#type: String,
    title: &'static str,
    status: u16,
    detail: String,
    #[serde(flatten)]
    more: Extension,
}

/// What some problems tell beyond the standard members.
#[derive(Serialize)]
#[serde(untagged)]
enum Extension {
    None {},
    Conflict { expected: u64, actual: u64 },
    Refused { rejection: &'static str },
}

impl Problem {
    /// What it is to clients.
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::MalformedJson { .. } => Kind::MalformedJson,
            Self::BadBody { .. } => Kind::BadBody,
            Self::BadId { .. } => Kind::BadId,
            Self::BadQuery { .. } => Kind::BadQuery,
            Self::BadHeader { .. } => Kind::BadHeader,
            Self::UnknownRoute { .. } => Kind::UnknownRoute,
            Self::UnknownType { .. } => Kind::UnknownType,
            Self::UnknownEventType { .. } => Kind::UnknownEventType,
            Self::NotFound => Kind::NotFound,
            Self::NoSuchVersion { .. } => Kind::NoSuchVersion,
            Self::MethodNotAllowed { .. } | Self::NoCommandForVerb { .. } => Kind::MethodNotAllowed,
            Self::Conflict { .. } => Kind::VersionConflict,
            Self::AlreadyExists { .. } | Self::CreatedTwice { .. } => Kind::AlreadyExists,
            Self::Deleted | Self::AfterDeletion { .. } => Kind::Deleted,
            Self::BodyTooLarge | Self::TooLarge(_) | Self::StateTooLarge | Self::AnswerTooLarge => Kind::TooLarge,
            Self::NotJson => Kind::NotJson,
            Self::UnknownCommand { .. } => Kind::UnknownCommand,
            Self::InvalidCommand { .. } => Kind::InvalidCommand,
            Self::Refused { .. } => Kind::Refused,
            Self::KeyReused => Kind::KeyReused,
            Self::IfMatchRequired => Kind::IfMatchRequired,
            Self::Unavailable { .. } => Kind::Unavailable,
            Self::NewerRelease { .. } => Kind::NewerRelease,
            Self::Contended => Kind::Contended,
            Self::Internal { .. } => Kind::Internal,
        }
    }

    /// What the caller reads of this very case.
    fn detail(&self) -> String {
        match self {
            Self::MalformedJson { reason }
            | Self::BadBody { reason }
            | Self::BadQuery { reason }
            | Self::CreatedTwice { reason }
            | Self::AfterDeletion { reason }
            | Self::UnknownCommand { reason }
            | Self::InvalidCommand { reason } => reason.clone(),
            Self::BadId { id } => {
                format!("{id:?} is no id: use 1 to 128 of the characters A-Z a-z 0-9 . _ ~ - (not \".\" or \"..\")")
            }
            Self::BadHeader { name, expected } => format!("{name} must be {expected}"),
            Self::UnknownRoute { path } => format!("there is nothing at {path}"),
            Self::UnknownType { asked, known } => {
                format!("there is no type {asked:?}; there are {}", known.join(", "))
            }
            Self::UnknownEventType { asked } => format!("no aggregate has an event {asked:?}"),
            Self::NotFound => "there is no such aggregate".to_owned(),
            Self::NoSuchVersion { asked, current } => {
                format!("there is no version {asked}; versions go from 1 to {current}")
            }
            Self::MethodNotAllowed { method, .. } => {
                format!("this resource does not take {method}; see the Allow header")
            }
            Self::NoCommandForVerb { type_name, verb, .. } => {
                format!("{type_name} has no command to {verb}; send one to its /commands")
            }
            Self::Conflict { expected, actual: 0 } => {
                format!("If-Match says version {expected}, and there is no such aggregate: create it without If-Match")
            }
            Self::Conflict { expected, actual } => {
                format!("If-Match says version {expected}, the aggregate is at {actual}: load it, merge and try again")
            }
            Self::AlreadyExists { .. } => "an aggregate with this id exists or existed; ids are used once".to_owned(),
            Self::Deleted => "the aggregate was deleted; its events can be read".to_owned(),
            Self::BodyTooLarge => format!("a body has at most {MAX_BODY} bytes"),
            Self::TooLarge(limit) => limit.to_string(),
            Self::StateTooLarge => {
                "the state is larger than the 6 MB of an answer; read the events page by page, from \
                                    /events, or an earlier version"
                    .to_owned()
            }
            Self::AnswerTooLarge => {
                "the events and messages are larger together than the 6 MB of an answer; send fewer \
                                     commands at once"
                    .to_owned()
            }
            Self::NotJson => "send JSON, with Content-Type: application/json".to_owned(),
            Self::Refused { refusal, .. } => refusal.detail.clone(),
            Self::KeyReused => "this Idempotency-Key was used for another request; take a new one".to_owned(),
            Self::IfMatchRequired => "send If-Match with the ETag of the version that you saw".to_owned(),
            Self::Unavailable { .. } => "the table is not available at the moment; try again".to_owned(),
            Self::NewerRelease { .. } => {
                "a newer release of the service wrote this, and another instance may be able to read it; try again"
                    .to_owned()
            }
            Self::Contended => {
                "other writers were faster until the time was up; nothing was written, try again".to_owned()
            }
            Self::Internal { .. } => "the service failed; its log says why".to_owned(),
        }
    }

    /// What it tells beyond the standard members.
    fn more(&self) -> Extension {
        match self {
            Self::Conflict { expected, actual } => Extension::Conflict { expected: *expected, actual: *actual },
            Self::Refused { refusal, .. } => Extension::Refused { rejection: refusal.name },
            _ => Extension::None {},
        }
    }

    /// The version to tell in the `ETag`, where there is one to go on from.
    fn version(&self) -> Option<u64> {
        match self {
            Self::Conflict { actual: version, .. }
            | Self::AlreadyExists { version }
            | Self::Refused { version, .. } => Some(*version).filter(|&version| version > 0),
            _ => None,
        }
    }

    /// The methods to tell in `Allow`.
    fn allow(&self) -> Option<HeaderValue> {
        match self {
            Self::MethodNotAllowed { allow: Some(allow), .. } | Self::NoCommandForVerb { allow, .. } => {
                HeaderValue::from_str(allow).ok()
            }
            _ => None,
        }
    }

    /// The one place that logs a failed request: what the service could not do at WARN and above, by the problem's type.
    fn log(&self, status: StatusCode) {
        let (status, problem) = (status.as_u16(), self.kind().urn());
        match self {
            Self::Internal { cause } => tracing::error!(status, problem, cause, "request failed"),
            Self::Unavailable { cause } | Self::NewerRelease { cause } => {
                tracing::warn!(status, problem, cause, "request failed");
            }
            Self::Contended => tracing::warn!(status, problem, "request failed"),
            other => tracing::debug!(status, problem, refusal = ?other, "request refused"),
        }
    }
}

impl Problem {
    /// The status and the body.
    pub(crate) fn tell(&self) -> (StatusCode, String) {
        let (kind, detail, more) = (self.kind(), self.detail(), self.more());
        let status = kind.status();
        let body = Body { r#type: kind.urn(), title: kind.title(), status: status.as_u16(), detail, more };
        (status, serde_json::to_string(&body).expect("a struct of texts and numbers can be written as JSON"))
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (status, body) = self.tell();
        self.log(status);
        let mut response = (status, [(header::CONTENT_TYPE, PROBLEM)], body).into_response();
        if let Some(version) = self.version() {
            response.headers_mut().insert(header::ETAG, etag(version));
        }
        if let Some(allow) = self.allow() {
            response.headers_mut().insert(header::ALLOW, allow);
        }
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER));
        }
        response
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        let cause = daybook_function_runtime::with_causes(&error);
        match error {
            StoreError::Unavailable { .. } => Self::Unavailable { cause },
            StoreError::Newer { .. } => Self::NewerRelease { cause },
            StoreError::Corrupt { .. } | StoreError::InvalidRequest { .. } => Self::Internal { cause },
        }
    }
}

impl Problem {
    /// The problem of a command that did not reach the rules of an aggregate at `version`.
    pub(crate) fn of_command(error: CommandError, version: u64) -> Self {
        let reason = error.to_string();
        match error {
            CommandError::Unknown { .. } => Self::UnknownCommand { reason },
            CommandError::Invalid { .. } => Self::InvalidCommand { reason },
            CommandError::Missing => Self::NotFound,
            CommandError::Exists => Self::AlreadyExists { version },
            CommandError::Deleted => Self::Deleted,
            CommandError::CreatedTwice { .. } => Self::CreatedTwice { reason },
            CommandError::AfterDeletion { .. } => Self::AfterDeletion { reason },
            CommandError::Unwritable { .. } => Self::Internal { cause: reason },
        }
    }
}

impl From<TransactError<Self>> for Problem {
    fn from(error: TransactError<Self>) -> Self {
        match error {
            TransactError::Decide(problem) => problem,
            TransactError::Conflict { expected, actual } => Self::Conflict { expected, actual },
            TransactError::KeyReused => Self::KeyReused,
            TransactError::Contended => Self::Contended,
            TransactError::TooLarge(limit) => Self::TooLarge(limit),
            TransactError::Store(error) => error.into(),
        }
    }
}
