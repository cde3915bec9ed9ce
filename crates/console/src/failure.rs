//! The page of a request that fails.

use std::error::Error;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use daybook_event_store::StoreError;
use maud::html;

use crate::frame::Page;
use crate::stack::StackError;

/// Why a page cannot be shown.
#[derive(Debug)]
pub(crate) struct Failure {
    status: StatusCode,
    title: &'static str,
    detail: String,
}

impl Failure {
    /// Nothing is at this address.
    pub(crate) fn missing(detail: impl Into<String>) -> Self {
        Self { status: StatusCode::NOT_FOUND, title: "Not found", detail: detail.into() }
    }

    /// The request cannot be understood.
    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, title: "This cannot be shown", detail: detail.into() }
    }
}

/// An error with all of its causes.
pub(crate) fn with_causes(error: &dyn Error) -> String {
    std::iter::successors(error.source(), |&cause| cause.source())
        .fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        Self { status, title: "The table cannot be read", detail: with_causes(&error) }
    }
}

impl From<StackError> for Failure {
    fn from(error: StackError) -> Self {
        let status = StatusCode::BAD_GATEWAY;
        Self { status, title: "The stack did not return the data of this page", detail: error.to_string() }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let Self { status, title, detail } = self;
        let body = html! {
            div.notice.bad role="alert" { h1 { (title) } p { (detail) } }
        };
        (status, Page::new(title, "", body)).into_response()
    }
}
