//! A problem as a response, and its line in the log.

use std::sync::Arc;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use daybook_decider::Registry;
use daybook_table::AggregateKey;
use serde::Serialize;

use crate::etag::etag;

pub(crate) const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");

/// How long a caller should wait when DynamoDB is not available, in seconds.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

/// A type of problem: what clients match on. Stable: a type never gets another slug, status or meaning.
#[derive(Debug)]
pub(crate) struct ProblemType {
    /// The last part of the `type` of its responses.
    pub(crate) slug: &'static str,
    pub(crate) status: StatusCode,
    pub(crate) title: &'static str,
    /// Its cause, for the OpenAPI document, and for callers if there is no more to say.
    pub(crate) description: &'static str,
    /// An example, for the OpenAPI document of these aggregates.
    pub(crate) example: fn(&Registry) -> Problem,
}

impl ProblemType {
    pub(crate) const fn new(
        (slug, status, title): (&'static str, StatusCode, &'static str),
        description: &'static str,
        example: fn(&Registry) -> Problem,
    ) -> Self {
        Self { slug, status, title, description, example }
    }

    pub(crate) fn urn(&self) -> String {
        format!("urn:daybook:problem:{}", self.slug)
    }
}

/// A request that failed: the type of problem, and the details of this case.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) problem_type: &'static ProblemType,
    pub(crate) detail: String,
    pub(crate) extension: Option<Box<ExtensionMembers>>,
    /// The aggregate's version, for the `ETag`, if the caller can continue from it.
    pub(crate) version: Option<u64>,
    /// The `STATE_VERSION` of the aggregate, for the `ETag`.
    pub(crate) state_version: Option<u32>,
    /// The position of the command in a batch, counted from 0.
    pub(crate) index: Option<u32>,
    /// The aggregate, if the request concerns several.
    pub(crate) aggregate: Option<Box<AggregateKey>>,
    /// The methods that the resource supports, for `Allow`, if the router does not know them.
    pub(crate) allow: Option<Box<str>>,
    /// Whether the same request can be repeated if the service failed, so that the response has a `Retry-After`.
    pub(crate) is_repeatable: bool,
    /// The cause of a failure of the service, which is logged, or what was checked and is forbidden. It is not returned.
    pub(crate) cause: Option<Box<str>>,
}

/// The members that a problem has beyond those of the standard.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum ExtensionMembers {
    Versions {
        expected: u64,
        actual: u64,
    },
    Rejection {
        rejection: &'static str,
    },
    Claim {
        claim: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        holder: Option<String>,
    },
    #[serde(rename_all = "camelCase")]
    Behind {
        seq_num: u64,
        suspended: bool,
    },
}

impl Problem {
    /// A problem of which the description of its type says all.
    pub(crate) fn of(problem_type: &'static ProblemType) -> Self {
        Self::new(problem_type, problem_type.description)
    }

    pub(crate) fn new(problem_type: &'static ProblemType, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        let (extension, version, state_version, index, aggregate, allow, cause) = Default::default();
        let is_repeatable = true;
        Self { problem_type, detail, extension, version, state_version, index, aggregate, allow, is_repeatable, cause }
    }

    /// Adds the aggregate to the cause that is logged.
    pub(crate) fn about(self, key: &AggregateKey) -> Self {
        let cause = self.cause.map(|cause| format!("{key}: {cause}").into());
        Self { cause, ..self }
    }

    pub(crate) fn to_json(&self) -> String {
        let ProblemType { status, title, .. } = self.problem_type;
        let body = ProblemBody {
            r#type: self.problem_type.urn(),
            title,
            status: status.as_u16(),
            detail: &self.detail,
            index: self.index,
            aggregate: self.aggregate.as_ref().map(ToString::to_string),
            extension: self.extension.as_deref(),
        };
        serde_json::to_string(&body).expect("a struct of texts and numbers can be written as JSON")
    }
}

/// What a response does not say about its problem: the cause of a failure, or what was checked and is forbidden.
pub fn cause(response: &Response) -> Option<&str> {
    response.extensions().get::<Arc<Problem>>()?.cause.as_deref()
}

/// Logs the problem of a response, if it has one, with the correlation id that the response returns: at WARN or ERROR if the
/// service failed. Nothing else logs it.
pub(crate) fn log_problem(response: &Response, correlation_id: &str) {
    let Some(problem) = response.extensions().get::<Arc<Problem>>() else { return };
    let Problem { problem_type, detail, cause, .. } = &**problem;
    let (status, problem, cause) = (problem_type.status, problem_type.urn(), cause.as_deref());
    let code = status.as_u16();
    if status == StatusCode::INTERNAL_SERVER_ERROR {
        tracing::error!(status = code, problem, correlation_id, cause, "request failed");
    } else if status.is_server_error() {
        tracing::warn!(status = code, problem, correlation_id, cause, "request failed");
    } else {
        tracing::debug!(status = code, problem, correlation_id, detail, "request rejected");
    }
}

#[derive(Serialize)]
struct ProblemBody<'a> {
    r#type: String,
    title: &'static str,
    status: u16,
    detail: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    aggregate: Option<String>,
    #[serde(flatten)]
    extension: Option<&'a ExtensionMembers>,
}

impl IntoResponse for Problem {
    /// The response, which carries the problem as an extension for [`log_problem`].
    fn into_response(self) -> Response {
        let status = self.problem_type.status;
        let mut response = (status, [(header::CONTENT_TYPE, PROBLEM_JSON)], self.to_json()).into_response();
        let headers = response.headers_mut();
        let version = self.version.filter(|&version| version > 0);
        let tag = version.zip(self.state_version);
        headers.extend(tag.map(|(version, state_version)| (header::ETAG, etag(version, state_version, None))));
        headers
            .extend(self.allow.as_deref().and_then(|allow| Some((header::ALLOW, HeaderValue::try_from(allow).ok()?))));
        if status == StatusCode::SERVICE_UNAVAILABLE && self.is_repeatable {
            headers.insert(header::RETRY_AFTER, RETRY_AFTER);
        }
        response.extensions_mut().insert(Arc::new(self));
        response
    }
}
