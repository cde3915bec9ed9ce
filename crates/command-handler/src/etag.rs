//! Entity tags: `"<version>-<state version>"`, and for a part of the state `"<version>-<state version>-<hash of the part>"`.
//!
//! The version of an aggregate is the number of its events. The state version is the `STATE_VERSION` of the aggregate
//! type: another release may fold the same events into another state, and a cache must distinguish the two.

use std::hash::{DefaultHasher, Hash, Hasher};

use axum::http::{HeaderMap, HeaderValue, header};
use daybook_decider::Json;

/// The tag of a state, or of a `part` of it. A caller who gets another part, or the whole, has another tag.
pub(crate) fn etag(version: u64, state_version: u32, part: Option<&Json>) -> HeaderValue {
    let hash = part.map(|part| {
        let mut hasher = DefaultHasher::new();
        part.text().hash(&mut hasher);
        format!("-{:x}", hasher.finish())
    });
    let tag = format!("\"{version}-{state_version}{}\"", hash.unwrap_or_default());
    HeaderValue::try_from(tag).expect("a header may contain digits in quotes")
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
        let mut numbers = tag.splitn(3, '-');
        let is_number = |digits: &&str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let version = numbers.next().filter(is_number)?.parse().ok()?;
        let is_hash = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_tag =
            numbers.next().is_none_or(|state_version| is_number(&state_version)) && numbers.next().is_none_or(is_hash);
        is_tag.then_some(Self::Version(version))
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
