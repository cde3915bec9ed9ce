//! The query of an address.

use std::error::Error;

use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::failure::Failure;

/// The query of a page. A wrong value in it is an error page of the console.
pub(crate) struct PageQuery<T>(pub(crate) T);

/// A version of an aggregate, or the number of an event.
#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct VersionNumber(pub(crate) u64);

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

impl TryFrom<String> for VersionNumber {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let number = text.parse().map(Self);
        number.map_err(|_| format!("{text:?} is not a version; a version is the number of an event, counted from 1"))
    }
}
