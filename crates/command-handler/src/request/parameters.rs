//! The parameters of a request, in its path, its query and its headers, with errors that name the parameter.

use std::fmt;

use axum::extract::{FromRequestParts, Path, Query};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue};
use serde::de::value::MapDeserializer;
use serde::de::{DeserializeOwned, Deserializer, Error, IntoDeserializer, Visitor};
use serde::{Deserialize, forward_to_deserialize_any};

use crate::problem::{self, Problem};

/// Query parameters; an unknown one is an error, so that a typing error is not silently ignored.
pub(crate) struct QueryParameters<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for QueryParameters<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Query(pairs): Query<Vec<(String, String)>> = Query::from_request_parts(parts, state)
            .await
            .map_err(|_| Problem::new(&problem::BAD_QUERY, "the query is not one of names and values"))?;
        let named = pairs.into_iter().map(|(name, value)| (name.clone(), Parameter { name, value }));
        let read = T::deserialize(MapDeserializer::new(named));
        read.map(Self).map_err(|QueryError(reason)| Problem::new(&problem::BAD_QUERY, reason))
    }
}

/// The query of an endpoint without parameters: any parameter is an error.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoQuery {}

struct Parameter {
    name: String,
    value: String,
}

impl Parameter {
    fn must_be(&self, expected: impl fmt::Display) -> QueryError {
        QueryError(format!("{} must be {expected}", self.name))
    }
}

impl<'de> IntoDeserializer<'de, QueryError> for Parameter {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Parameter {
    type Error = QueryError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, QueryError> {
        visitor.visit_string(self.value)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, QueryError> {
        visitor.visit_some(self)
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, QueryError> {
        let number = self.value.parse();
        visitor.visit_u64(number.map_err(|_| self.must_be(format_args!("a whole number from 0 to {}", u64::MAX)))?)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, QueryError> {
        visitor.visit_bool(self.value.parse().map_err(|_| self.must_be("true or false"))?)
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 u8 u16 u32 f32 f64 char str string bytes byte_buf unit unit_struct newtype_struct seq tuple
        tuple_struct map struct enum identifier ignored_any
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct QueryError(String);

impl Error for QueryError {
    fn custom<T: fmt::Display>(reason: T) -> Self {
        Self(reason.to_string())
    }

    fn unknown_field(name: &str, known: &'static [&'static str]) -> Self {
        Self(match known {
            [] => format!("there is no parameter {name:?} here, nor any other"),
            known => format!("there is no parameter {name:?} here; known: {}", known.join(", ")),
        })
    }

    fn missing_field(name: &'static str) -> Self {
        Self(format!("the parameter {name} is missing"))
    }

    fn duplicate_field(name: &'static str) -> Self {
        Self(format!("the parameter {name} comes twice"))
    }
}

/// The values that a path has for the parameters of its route. A path that cannot be decoded is a bad id.
pub(crate) struct PathParameters<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for PathParameters<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Path::from_request_parts(parts, state).await {
            Ok(Path(names)) => Ok(Self(names)),
            Err(_) => Err(problem::bad_id(parts.uri.path())),
        }
    }
}

fn single_value<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a HeaderValue>, Problem> {
    let mut values = headers.get_all(name).iter();
    let value = values.next();
    match values.next() {
        None => Ok(value),
        Some(_) => Err(problem::bad_header(name, "sent once")),
    }
}

/// The value of a header that cannot be a list. API Gateway joins repeated headers by commas, so a comma outside quotes means
/// that the header came twice.
pub(crate) fn only_value<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a HeaderValue>, Problem> {
    let value = single_value(headers, name)?;
    let mut is_quoted = false;
    let separates = |byte: &u8| {
        is_quoted ^= *byte == b'"';
        *byte == b',' && !is_quoted
    };
    match value.is_some_and(|value| value.as_bytes().iter().any(separates)) {
        true => Err(problem::bad_header(name, "sent once")),
        false => Ok(value),
    }
}

/// The value of a header that is stored unchanged, so it must be short and visible.
pub(crate) fn visible_text(headers: &HeaderMap, name: &str) -> Result<Option<String>, Problem> {
    let Some(value) = single_value(headers, name)? else { return Ok(None) };
    match value.to_str() {
        Ok(text) if (1..=128).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic()) => {
            Ok(Some(text.to_owned()))
        }
        _ => Err(problem::bad_header(name, "1 to 128 visible ASCII characters without spaces")),
    }
}
