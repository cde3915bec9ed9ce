//! The path and the query of an address.

use std::error::Error;

use axum::extract::path::ErrorKind;
use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequestParts, Path, Query};
use axum::http::request::Parts;
use serde::de::{self, DeserializeOwned};
use serde::{Deserialize, Deserializer};

use crate::failure::Failure;

/// The parameters in the path of a page. A wrong value in them is an error page of the console: no page has this address.
pub(crate) struct PagePath<T>(pub(crate) T);

/// The query of a page. A wrong value in it is an error page of the console.
pub(crate) struct PageQuery<T>(pub(crate) T);

/// A version of an aggregate, or the number of an event.
#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct VersionNumber(pub(crate) u64);

/// The query of a page about a version.
#[derive(Deserialize)]
pub(crate) struct VersionQuery {
    pub(crate) version: VersionNumber,
}

/// The position of a message on the bus.
#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct BusPosition(pub(crate) usize);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for PagePath<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let path = Path::from_request_parts(parts, state).await.map_err(|rejection| {
            let cause = match &rejection {
                PathRejection::FailedToDeserializePathParams(error) => match error.kind() {
                    ErrorKind::DeserializeError { message, .. } => message.clone(),
                    kind => kind.to_string(),
                },
                _ => rejection.to_string(),
            };
            Failure::missing(format!("There is no page {}: {cause}.", parts.uri.path()))
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

impl TryFrom<String> for VersionNumber {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let number = text.parse().map(Self);
        number.map_err(|_| format!("{text:?} is not a version; a version is the number of an event, counted from 1"))
    }
}

impl TryFrom<String> for BusPosition {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let position = text.parse().map(Self);
        position.map_err(|_| format!("{text:?} is not the position of a message on the bus; they are counted from 1"))
    }
}

/// Reads the position of a message on the bus, or an empty text, as an unused field of a form has.
pub(crate) fn position_or_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    if !text.is_empty() {
        BusPosition::try_from(text.clone()).map_err(de::Error::custom)?;
    }
    Ok(text)
}
