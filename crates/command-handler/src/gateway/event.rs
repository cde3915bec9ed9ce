//! The event of an invocation.

use lambda_http::request::LambdaRequest;
use serde::Deserialize;
use serde::de::{Deserializer, Error};
use serde_json::value::RawValue;

use super::headers::with_any_headers;

/// A request of API Gateway, whatever its headers contain.
#[derive(Debug)]
pub struct ApiEvent(pub LambdaRequest);

impl<'de> Deserialize<'de> for ApiEvent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let event = Box::<RawValue>::deserialize(deserializer)?;
        let read = |text: &str| serde_json::from_str(text);
        let request = read(event.get()).or_else(|_| with_any_headers(event.get(), read));
        request.map(Self).map_err(D::Error::custom)
    }
}
