//! The fields of a posted form.

use std::sync::Arc;

use axum::extract::{Form, FromRequest, Request};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};

use crate::console::Console;

/// The name of the field with the token.
const TOKEN: &str = "token";

/// The hidden field with the token that every form carries.
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

    /// The values of all fields of this name.
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
