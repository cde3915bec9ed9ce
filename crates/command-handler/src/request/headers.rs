//! Request headers, where they are more than a text.

use axum::http::{HeaderMap, HeaderValue, header};

use crate::etag;
use crate::problem::{self, Problem};

/// The value of a header that means nothing when it comes twice.
pub(crate) fn single_value<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a HeaderValue>, Problem> {
    let mut values = headers.get_all(name).iter();
    let value = values.next();
    match values.next() {
        None => Ok(value),
        Some(_) => Err(problem::bad_header(name, "sent once")),
    }
}

/// The value of a header that is stored as it came, so it must be short and visible.
pub(crate) fn visible_text(headers: &HeaderMap, name: &str) -> Result<Option<String>, Problem> {
    let Some(value) = single_value(headers, name)? else { return Ok(None) };
    match value.to_str() {
        Ok(text) if (1..=128).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic()) => {
            Ok(Some(text.to_owned()))
        }
        _ => Err(problem::bad_header(name, "1 to 128 visible ASCII characters without spaces")),
    }
}

/// The version in `If-Match`, with or without quotes; `*` matches any.
pub(crate) fn if_match(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let Some(value) = single_value(headers, "If-Match")? else { return Ok(None) };
    let text = value.to_str().unwrap_or_default().trim();
    if text == "*" {
        return Ok(None);
    }
    let expected = "the ETag of one version, such as \"3\"";
    etag::version(text).map(Some).ok_or_else(|| problem::bad_header("If-Match", expected))
}

/// Whether `Content-Type` says that the body is JSON.
pub(crate) fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()) else { return false };
    let essence = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json"))
}
