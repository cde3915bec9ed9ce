//! An endpoint: the route that it handles, and its operation in the OpenAPI document.

use axum::http::{Method, StatusCode};
use axum::routing::{MethodFilter, MethodRouter};
use daybook_decider::Commands;
use schemars::Schema;

use super::request_headers::RequestHeader;
use crate::api::Api;
use crate::problem::ProblemType;

/// The path of an aggregate. The methods that it supports depend on the commands of its type.
pub(crate) const AGGREGATE_PATH: &str = "/{type}/{id}";

pub(crate) const VIEW_PATH: &str = "/views/{view}";

/// The path of a row. A key may contain slashes: API Gateway decodes those that a client has encoded.
pub(crate) const ROW_PATH: &str = "/views/{view}/{*key}";

pub(crate) struct Endpoint {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    /// The handler, for requests of the method.
    pub(crate) handler: fn(MethodFilter) -> MethodRouter<Api>,
    /// The beginning of the names of its shared responses in the document.
    pub(crate) name: &'static str,
    /// The beginning of the operation's id; the name of the aggregate type follows. No such beginning is the start of
    /// another, and type names contain no capitals, so ids are unique.
    pub(crate) operation_id: &'static str,
    /// The command that it runs, if that is always the same. A type without this command does not have the endpoint.
    pub(crate) command: Option<fn(Commands) -> Option<&'static str>>,
    pub(crate) summary: &'static str,
    pub(crate) description: &'static str,
    /// The schema of the query parameters. If there are none, the handler reads `QueryParameters<NoQuery>`.
    pub(crate) query: Option<fn() -> Schema>,
    pub(crate) request_headers: &'static [&'static [&'static RequestHeader]],
    pub(crate) request_body: Option<RequestBody>,
    pub(crate) successes: &'static [Success],
    pub(crate) problems: &'static [&'static [&'static ProblemType]],
}

impl Endpoint {
    /// The route to the handler.
    pub(crate) fn route(&self) -> MethodRouter<Api> {
        let method = MethodFilter::try_from(self.method.clone());
        (self.handler)(method.expect("an endpoint has one of the methods that can be routed"))
    }

    /// Whether it is about aggregates of one type, and not about the service.
    pub(crate) fn is_about_a_type(&self) -> bool {
        self.path.starts_with("/{type}")
    }

    /// Whether it is about one view.
    pub(crate) fn is_about_a_view(&self) -> bool {
        self.path.starts_with(VIEW_PATH)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestBody {
    /// The data of the create command, and an id.
    CreateData,
    /// The data of the update command.
    UpdateData,
    /// One command or several.
    Commands,
}

/// The response to a request that succeeds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Success {
    /// A write has created an aggregate.
    Created,
    /// A write has changed an aggregate.
    Changed,
    State,
    /// The caller has the state already.
    NotModified,
    EventPage,
    AggregatePage,
    FeedPage,
    Row,
    /// The caller has the row already.
    RowNotModified,
    RowPage,
    OpenApi,
}

impl Success {
    /// The status, the description, and the headers, each with whether it is always present.
    pub(crate) fn described(self) -> (StatusCode, &'static str, &'static [(ResponseHeader, bool)]) {
        use ResponseHeader::{ETag, IdempotencyReplayed, Link, Location, RowETag};
        match self {
            Self::Created => {
                let headers = &[(ETag, true), (Location, true), (IdempotencyReplayed, false)];
                (StatusCode::CREATED, "The aggregate was created.", headers)
            }
            Self::Changed => (StatusCode::OK, "The write was executed.", &[(ETag, true), (IdempotencyReplayed, false)]),
            Self::State => (StatusCode::OK, "The state.", &[(ETag, true)]),
            Self::NotModified => {
                (StatusCode::NOT_MODIFIED, "The `ETag` is one of those in `If-None-Match`.", &[(ETag, true)])
            }
            Self::EventPage | Self::AggregatePage | Self::FeedPage | Self::RowPage => {
                (StatusCode::OK, "A page.", &[(Link, false)])
            }
            Self::Row => (StatusCode::OK, "The row.", &[(RowETag, true)]),
            Self::RowNotModified => {
                (StatusCode::NOT_MODIFIED, "The `ETag` is one of those in `If-None-Match`.", &[(RowETag, true)])
            }
            Self::OpenApi => (StatusCode::OK, "The document.", &[]),
        }
    }
}

#[derive(Clone, Copy)]
pub(crate) enum ResponseHeader {
    ETag,
    /// The `ETag` of a row of a view.
    RowETag,
    Location,
    Link,
    RetryAfter,
    Allow,
    CorrelationId,
    IdempotencyReplayed,
}
