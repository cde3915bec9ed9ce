//! `Idempotency-Key`: a request that is repeated gets the answer that the first one got.

use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use daybook_decider::Json;
use daybook_event_store::StoredResponse;
use daybook_table::AggregateKey;
use sha2::{Digest, Sha256};

use crate::answer::Answer;
use crate::body::canonical;
use crate::problem::Problem;
use crate::request::single;

const NAME: HeaderName = HeaderName::from_static("idempotency-key");
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// A key's characters at most.
const MAX_KEY: usize = 255;

/// The key of a request, and what tells the request from others.
pub(crate) struct Idempotency {
    pub(crate) key: String,
    principal: String,
    digest: String,
}

impl Idempotency {
    /// The key of a request, if it has one. Under the same key another `principal`'s is another request, and so refused.
    pub(crate) fn read(parts: &Parts, principal: Option<&str>, body: &Json) -> Result<Option<Self>, Problem> {
        let Some(value) = single(&parts.headers, NAME.as_str(), "Idempotency-Key")? else { return Ok(None) };
        let key = value.to_str().unwrap_or_default();
        // The standard in the making puts it in quotes, most clients do not.
        let key = key.strip_prefix('"').and_then(|key| key.strip_suffix('"')).unwrap_or(key);
        if !(1..=MAX_KEY).contains(&key.len()) || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            let expected = "1 to 255 visible ASCII characters without spaces";
            return Err(Problem::BadHeader { name: "Idempotency-Key", expected });
        }
        // Read and written once, so that neither white space nor the order of members makes another request.
        let body = canonical(body).map_err(|fault| Problem::MalformedJson { reason: fault.to_string() })?;
        let if_match = parts.headers.get(header::IF_MATCH).map_or(&b""[..], HeaderValue::as_bytes);
        let principal = principal.unwrap_or_default();
        let digest = digest([
            parts.method.as_str().as_bytes(),
            parts.uri.path().as_bytes(),
            if_match,
            principal.as_bytes(),
            body.as_bytes(),
        ]);
        Ok(Some(Self { key: key.to_owned(), principal: principal.to_owned(), digest }))
    }

    /// The id of an aggregate that is created under this key: the same for every repetition, and the caller's own.
    pub(crate) fn derived_id(&self, type_name: &str) -> String {
        let mut id = digest([type_name.as_bytes(), self.principal.as_bytes(), self.key.as_bytes()]);
        id.truncate(32);
        id
    }

    /// An answer as it is to be kept.
    pub(crate) fn keep(&self, answer: &Answer) -> StoredResponse {
        StoredResponse {
            digest: self.digest.clone(),
            status: answer.status.as_u16(),
            version: answer.version,
            body: answer.body.clone(),
        }
    }

    /// The answer that was kept, if it was to this request.
    pub(crate) fn replay(&self, kept: StoredResponse, key: &AggregateKey) -> Result<Response, Problem> {
        if kept.digest != self.digest {
            return Err(Problem::KeyReused);
        }
        let status =
            StatusCode::from_u16(kept.status).map_err(|fault| Problem::Internal { cause: fault.to_string() })?;
        let mut response = Answer { status, version: kept.version, body: kept.body }.into_response(key)?;
        response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
        Ok(response)
    }
}

/// SHA-256 of parts that cannot run into each other, in hexadecimal digits.
fn digest<const N: usize>(parts: [&[u8]; N]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.len().to_be_bytes());
        hash.update(part);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
