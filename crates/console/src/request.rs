//! What a page reads from a request: the path and the query of its address, and the fields of a posted form.

use std::error::Error;
use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Form, FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use daybook_decider::Model;
use maud::{Markup, html};
use serde::de::DeserializeOwned;

use crate::console::Console;
use crate::frame::Failure;

/// The parameters in the path of a page. A wrong value in them is an error page of the console: no page has this address.
pub(crate) struct PagePath<T>(pub(crate) T);

/// The query of a page. A wrong value in it is an error page of the console.
pub(crate) struct PageQuery<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for PagePath<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let path = Path::from_request_parts(parts, state).await.map_err(|rejection: PathRejection| {
            Failure::missing(format!("There is no page {}: {}.", parts.uri.path(), rejection.body_text()))
        })?;
        let Path(path) = path;
        Ok(Self(path))
    }
}

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for PageQuery<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        let Query(query) = Query::try_from_uri(&parts.uri).map_err(|error| {
            let cause = error.source().map_or_else(|| error.to_string(), ToString::to_string);
            Failure::invalid(format!("A parameter in the address is wrong: {cause}."))
        })?;
        Ok(Self(query))
    }
}

pub(crate) fn model<'a>(console: &'a Console, name: &str) -> Result<&'a dyn Model, Failure> {
    console.registry.get(name).ok_or_else(|| Failure::missing(format!("There is no type {name}.")))
}

const TOKEN: &str = "token";

pub(crate) fn token(form_token: &str) -> Markup {
    html! { input type="hidden" name=(TOKEN) value=(form_token); }
}

/// The fields of a form that a page of the console sent: it has the token.
#[derive(Debug, Default)]
pub(crate) struct PostedForm(pub(crate) Vec<(String, String)>);

impl PostedForm {
    /// The value of a field; `None` if it is empty.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        self.values(name).find(|value| !value.is_empty())
    }

    pub(crate) fn values<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(field, _)| field == name).map(|(_, value)| value.as_str())
    }
}

impl FromRequest<Arc<Console>> for PostedForm {
    type Rejection = Response;

    async fn from_request(request: Request, console: &Arc<Console>) -> Result<Self, Response> {
        let Form(fields) =
            Form::<Vec<(String, String)>>::from_request(request, console).await.map_err(IntoResponse::into_response)?;
        let form = Self(fields);
        if form.value(TOKEN) == Some(console.form_token.as_str()) {
            return Ok(form);
        }
        let reason =
            "The form is of an earlier start of the stack. Go back, load the page again, and send the form again.";
        Err((StatusCode::FORBIDDEN, reason).into_response())
    }
}
