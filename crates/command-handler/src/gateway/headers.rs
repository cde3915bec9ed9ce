//! Headers with values of any bytes, as HTTP allows them. `lambda_http` reads ASCII only, and an event with another
//! character would fail the invocation.

use std::collections::BTreeMap;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use lambda_http::request::LambdaRequest;
use serde_json::value::{RawValue, to_raw_value};

/// Reads an event without its headers, and adds these to the request.
pub(super) fn with_any_headers(
    event: &str,
    read: impl Fn(&str) -> Result<LambdaRequest, serde_json::Error>,
) -> Result<LambdaRequest, serde_json::Error> {
    let mut event: BTreeMap<String, &RawValue> = serde_json::from_str(event)?;
    let headers = event.remove("headers").map(RawValue::get).unwrap_or_default();
    let mut request = read(to_raw_value(&event)?.get())?;
    if let LambdaRequest::ApiGatewayV2(request) = &mut request {
        request.headers = any_headers(headers);
    }
    Ok(request)
}

/// The headers of a JSON object. A value that HTTP does not allow becomes a value that every reader rejects, because a
/// write without one of its headers could mean something else. A header whose name HTTP does not allow is dropped,
/// because nothing reads it.
fn any_headers(headers: &str) -> HeaderMap {
    let headers: BTreeMap<String, &RawValue> = serde_json::from_str(headers).unwrap_or_default();
    let value = |value: &RawValue| {
        let text: String = serde_json::from_str(value.get()).ok()?;
        HeaderValue::from_bytes(text.as_bytes()).ok()
    };
    let unreadable = || HeaderValue::from_bytes(&[0xff]).ok();
    let header =
        |(name, text): (String, &RawValue)| Some((HeaderName::try_from(name).ok()?, value(text).or_else(unreadable)?));
    headers.into_iter().filter_map(header).collect()
}
