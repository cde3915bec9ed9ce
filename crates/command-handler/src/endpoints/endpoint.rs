//! An endpoint: the route that it handles, and its operation in the OpenAPI document.

use axum::http::StatusCode;
use axum::routing::{MethodFilter, MethodRouter};
use daybook_decider::Commands;
use schemars::Schema;

use super::request_headers::{READ_CORRELATION_ID, RequestHeader};
use crate::api::Api;
use crate::openapi::aggregate_type::AggregateType;
use crate::openapi::schemas::{Content, Schemas};
use crate::openapi::view::ViewSubject;
use crate::problem::{self, ProblemType};

/// The path of an aggregate. The methods that it supports depend on the commands of its type.
pub(crate) const AGGREGATE_PATH: &str = "/{type}/{id}";

pub(crate) const VIEW_PATH: &str = "/views/{view}";

/// The path of a row. A key may contain slashes: API Gateway decodes those that a client has encoded.
pub(crate) const ROW_PATH: &str = "/views/{view}/{*key}";

pub(crate) struct Endpoint {
    /// `GET`, `POST` or `DELETE`.
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    pub(crate) handler: fn(MethodFilter) -> MethodRouter<Api>,
    /// The beginning of the names of its shared responses and parameters in the document.
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
    /// Whether it creates an aggregate, on which other operations can follow.
    pub(crate) creates: bool,
    pub(crate) successes: &'static [Success],
    pub(crate) problems: &'static [&'static [&'static ProblemType]],
}

pub(super) const READ_PROBLEMS: &[&ProblemType] =
    &[&problem::BAD_QUERY, &problem::FORBIDDEN, &problem::INTERNAL, &problem::UNAVAILABLE];

impl Endpoint {
    /// What most endpoints that read have in common.
    pub(super) const READ: Self = Self {
        method: "GET",
        path: "",
        handler: |_| MethodRouter::new(),
        name: "",
        operation_id: "",
        command: None,
        summary: "",
        description: "",
        query: None,
        request_headers: &[&[&READ_CORRELATION_ID]],
        request_body: None,
        creates: false,
        successes: &[],
        problems: &[],
    };

    pub(crate) fn route(&self) -> MethodRouter<Api> {
        (self.handler)(match self.method {
            "GET" => MethodFilter::GET,
            "DELETE" => MethodFilter::DELETE,
            _ => MethodFilter::POST,
        })
    }

    pub(crate) fn is_about_a_type(&self) -> bool {
        self.path.starts_with("/{type}")
    }

    pub(crate) fn is_about_a_view(&self) -> bool {
        self.path.starts_with(VIEW_PATH)
    }
}

#[derive(Clone, Copy)]
pub(crate) enum RequestBody {
    /// About one aggregate type, and whether it is required.
    Type(fn(&AggregateType<'_>, &mut Schemas) -> (Content, bool)),
    Service(fn(&[AggregateType<'_>], &mut Schemas) -> Content),
}

#[derive(Clone, Copy)]
pub(crate) enum Body {
    Type(fn(&AggregateType<'_>, &mut Schemas) -> Content),
    View(fn(&ViewSubject<'_>, &mut Schemas) -> Content),
    Service(fn(&[AggregateType<'_>], &mut Schemas) -> Content),
}

pub(crate) struct Success {
    pub(crate) status: StatusCode,
    pub(crate) description: &'static str,
    /// The headers by their names in `openapi/fixed.json`, each with whether it is always present.
    pub(crate) headers: &'static [(&'static str, bool)],
    pub(crate) body: Option<Body>,
}

impl Success {
    pub(super) const fn page(body: Body) -> Self {
        let headers = &[("Link", false)];
        Self { status: StatusCode::OK, description: "A page.", headers, body: Some(body) }
    }

    pub(super) const fn not_modified(headers: &'static [(&'static str, bool)]) -> Self {
        let description = "The `ETag` is one of those in `If-None-Match`.";
        Self { status: StatusCode::NOT_MODIFIED, description, headers, body: None }
    }
}
