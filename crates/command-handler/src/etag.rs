//! Versions as entity tags: the `ETag` of an answer, and the versions that `If-Match` and `If-None-Match` name.

use axum::http::{HeaderMap, HeaderValue, header};

/// The `ETag` of a version.
pub(crate) fn etag(version: u64) -> HeaderValue {
    HeaderValue::try_from(format!("\"{version}\"")).expect("digits in quotes can stand in a header")
}

/// The version in the text of an `ETag`; the quotes are optional.
pub(crate) fn version(etag: &str) -> Option<u64> {
    let digits = etag.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(etag);
    digits.parse().ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Whether `If-None-Match` names this version: the caller has it already.
pub(crate) fn is_none_match(headers: &HeaderMap, version: u64) -> bool {
    let etag = etag(version);
    headers
        .get_all(header::IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|candidate| candidate.trim().trim_start_matches("W/"))
        .any(|candidate| candidate == "*" || etag == candidate)
}
