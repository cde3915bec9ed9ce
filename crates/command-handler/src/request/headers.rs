//! Reads and checks request headers.

use axum::http::{HeaderMap, HeaderValue};

use crate::etag::IfMatch;
use crate::problem::{self, Problem};

/// The value of a header that may be sent only once.
pub(crate) fn single_value<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a HeaderValue>, Problem> {
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

pub(crate) fn if_match(headers: &HeaderMap) -> Result<Option<IfMatch>, Problem> {
    let Some(value) = only_value(headers, "If-Match")? else { return Ok(None) };
    let condition = IfMatch::parse(value.to_str().unwrap_or_default().trim());
    let expected = "the ETag of one version, such as \"3-1\"";
    condition.map(Some).ok_or_else(|| problem::bad_header("If-Match", expected))
}

/// Whether `Content-Type` declares the body to be JSON.
pub(crate) fn is_json(headers: &HeaderMap) -> Result<bool, Problem> {
    let Some(value) = only_value(headers, "Content-Type")? else { return Ok(false) };
    let value = value.to_str().unwrap_or_default();
    let essence = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    Ok(essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json")))
}
