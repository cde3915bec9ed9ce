//! Entity tags: `"<version>-<state version>"`.
//!
//! The version of an aggregate is the number of its events. The state version is the `STATE_VERSION` of the aggregate
//! type: another release may fold the same events into another state, and a cache must distinguish the two.

use axum::http::{HeaderMap, HeaderValue, header};

pub(crate) fn etag(version: u64, state_version: u32) -> HeaderValue {
    HeaderValue::try_from(format!("\"{version}-{state_version}\"")).expect("a header may contain digits in quotes")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IfMatch {
    /// `*`: the aggregate exists.
    Exists,
    Version(u64),
}

impl IfMatch {
    /// Reads the text of the header: `*`, an `ETag`, or a bare version, each with or without quotes.
    ///
    /// Only the version counts. The events decide whether a write is based on the latest version, whatever state they
    /// were folded into. For the same reason a weak tag is as good as a strong one: a proxy that compresses responses
    /// makes their tags weak.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text == "*" {
            return Some(Self::Exists);
        }
        let unquoted = |text: &str| text.strip_prefix('"')?.strip_suffix('"').map(str::to_owned);
        let tag = match text.strip_prefix("W/") {
            Some(weak) => unquoted(weak)?,
            None => unquoted(text).unwrap_or_else(|| text.to_owned()),
        };
        let (version, state_version) = tag.split_once('-').unwrap_or((&tag, "0"));
        let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let version = version.parse().ok().filter(|_| is_number(version) && is_number(state_version));
        version.map(Self::Version)
    }

    /// The same text for all forms of this condition.
    pub(crate) fn canonical(self) -> String {
        match self {
            Self::Exists => "*".to_owned(),
            Self::Version(version) => format!("\"{version}\""),
        }
    }
}

/// Whether `If-None-Match` contains this tag: the caller already has the state. A weak tag matches too.
pub(crate) fn is_none_match(headers: &HeaderMap, etag: &HeaderValue) -> bool {
    headers
        .get_all(header::IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|candidate| candidate.trim().trim_start_matches("W/"))
        .any(|candidate| candidate == "*" || etag == candidate)
}
