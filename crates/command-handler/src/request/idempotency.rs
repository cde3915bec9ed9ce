//! `Idempotency-Key`: the identity of a request, by which a repetition is recognised.

use std::time::Duration;

use axum::http::request::Parts;
use daybook_decider::{Caller, Json};
use daybook_event_store::IdempotencyKey;
use percent_encoding::percent_decode_str;
use sha2::{Digest, Sha256};

use super::body::canonical;
use super::headers::only_value;
use crate::etag::IfMatch;
use crate::problem::{self, Problem};

const MAX_KEY: usize = 255;

/// The key of a request, and the digest that distinguishes the request from others under the same key.
///
/// The digest covers method, path, `If-Match`, principal and body. It leaves out the query: `rebuild=true` changes how the
/// state is read, and not what the request means, so a repetition with or without it is the same request.
pub(crate) struct RequestIdentity {
    key: String,
    digest: String,
    principal: String,
}

impl RequestIdentity {
    /// The identity of a request, if it has a key. A request of another principal has another digest.
    pub(crate) fn read(
        parts: &Parts,
        if_match: Option<IfMatch>,
        caller: &Caller,
        body: &Json,
    ) -> Result<Option<Self>, Problem> {
        let Some(value) = only_value(&parts.headers, "Idempotency-Key")? else { return Ok(None) };
        let key = value.to_str().unwrap_or_default();
        // The draft of the standard puts the key in quotes; most clients do not.
        let key = key.strip_prefix('"').and_then(|key| key.strip_suffix('"')).unwrap_or(key);
        if !(1..=MAX_KEY).contains(&key.len()) || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            let expected = "1 to 255 visible ASCII characters without spaces";
            return Err(problem::bad_header("Idempotency-Key", expected));
        }
        if caller.is_authenticated && caller.principal.is_none() {
            let expected = "left out: the authorizer names no caller, so the requests of two callers could not be \
                            distinguished";
            return Err(problem::bad_header("Idempotency-Key", expected));
        }
        // Canonical, so that neither white space nor the order of members changes the digest.
        let body = canonical(body).map_err(|error| Problem::new(&problem::MALFORMED_JSON, error.to_string()))?;
        let principal = caller.principal.clone().unwrap_or_default();
        let method = parts.method.as_str().as_bytes();
        let path: Vec<u8> = percent_decode_str(parts.uri.path()).collect();
        // Canonical, so that another form of the same condition does not change the digest.
        let condition = if_match.map(IfMatch::canonical).unwrap_or_default();
        let digest = digest([method, &path, condition.as_bytes(), principal.as_bytes(), body.as_bytes()]);
        Ok(Some(Self { key: key.to_owned(), digest, principal }))
    }

    /// The id of an aggregate that is created under this key: the same for every repetition, and different for each
    /// caller.
    pub(crate) fn derived_id(&self, type_name: &str) -> String {
        let mut id = digest([type_name.as_bytes(), self.principal.as_bytes(), self.key.as_bytes()]);
        id.truncate(32);
        id
    }

    pub(crate) fn store_key(&self, ttl: Duration) -> IdempotencyKey<'_> {
        IdempotencyKey { key: &self.key, digest: &self.digest, ttl }
    }
}

/// SHA-256 of the parts, each preceded by its length so that no other parts give the same bytes, in hexadecimal digits.
fn digest<const N: usize>(parts: [&[u8]; N]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.len().to_be_bytes());
        hash.update(part);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
