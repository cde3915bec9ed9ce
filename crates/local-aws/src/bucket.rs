//! A bucket of S3 that holds texts: its objects are put by this process, and listed, read and deleted over HTTP.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::state::{DataFileError, Journal, StackState};

const PAGE: usize = 1000;

/// A bucket. Clones share it.
#[derive(Clone)]
pub struct Bucket(Arc<Mutex<BucketState>>);

struct BucketState {
    name: String,
    objects: BTreeMap<String, String>,
    /// Where the keys of deleted objects are stored.
    stored: StackState,
}

impl Bucket {
    /// A bucket of this name with these objects, by key, without those whose deletion is stored.
    pub fn new(
        name: &str,
        objects: impl IntoIterator<Item = (String, String)>,
        stored: StackState,
    ) -> Result<Self, DataFileError> {
        let mut objects: BTreeMap<_, _> = objects.into_iter().collect();
        for key in stored.entries::<String>(Journal::DELETED_OBJECTS)? {
            objects.remove(&key);
        }
        Ok(Self(Arc::new(Mutex::new(BucketState { name: name.to_owned(), objects, stored }))))
    }

    pub fn put(&self, key: String, text: String) {
        self.state().objects.insert(key, text);
    }

    pub fn keys(&self) -> Vec<String> {
        self.state().objects.keys().cloned().collect()
    }

    /// The endpoint of the bucket: `GET /BUCKET?list-type=2`, and `GET` and `DELETE` of `/BUCKET/KEY`.
    pub fn router(&self) -> Router {
        Router::new()
            .route("/{bucket}", get(list))
            .route("/{bucket}/{*key}", get(object).delete(delete))
            .with_state(self.clone())
    }

    fn state(&self) -> MutexGuard<'_, BucketState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn error(status: StatusCode, code: &str) -> Response {
    let body = format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code></Error>");
    (status, [(header::CONTENT_TYPE, "application/xml")], body).into_response()
}

async fn list(
    State(bucket): State<Bucket>,
    Path(name): Path<String>,
    Query(query): Query<BTreeMap<String, String>>,
) -> Response {
    let state = bucket.state();
    if state.name != name {
        return error(StatusCode::NOT_FOUND, "NoSuchBucket");
    }
    if query.get("list-type").map(String::as_str) != Some("2") {
        return error(StatusCode::NOT_IMPLEMENTED, "NotImplemented");
    }
    let prefix = query.get("prefix").map_or("", String::as_str);
    let after = query.get("continuation-token").map_or("", String::as_str);
    let most = query.get("max-keys").and_then(|most| most.parse().ok()).unwrap_or(PAGE).min(PAGE);
    let mut keys = state.objects.iter().filter(|(key, _)| key.starts_with(prefix) && key.as_str() > after);
    let page: Vec<_> = keys.by_ref().take(most).collect();
    let token = keys.next().and(page.last()).map(|(key, _)| key.as_str());
    let is_truncated = token.is_some();
    let token = token.map(|token| format!("<NextContinuationToken>{}</NextContinuationToken>", escaped(token)));
    let contents = page
        .iter()
        .map(|(key, text)| format!("<Contents><Key>{}</Key><Size>{}</Size></Contents>", escaped(key), text.len()));
    let body = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult><Name>{name}</Name><KeyCount>{}</KeyCount><IsTruncated>\
         {is_truncated}</IsTruncated>{}{}</ListBucketResult>",
        page.len(),
        token.unwrap_or_default(),
        contents.collect::<String>()
    );
    (StatusCode::OK, [(header::CONTENT_TYPE, "application/xml")], body).into_response()
}

fn escaped(key: &str) -> String {
    key.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

async fn object(State(bucket): State<Bucket>, Path((name, key)): Path<(String, String)>) -> Response {
    let state = bucket.state();
    match state.objects.get(&key) {
        Some(text) if state.name == name => text.clone().into_response(),
        _ => error(StatusCode::NOT_FOUND, "NoSuchKey"),
    }
}

/// A key that no object has is no error, as in S3.
async fn delete(State(bucket): State<Bucket>, Path((name, key)): Path<(String, String)>) -> Response {
    let mut state = bucket.state();
    if state.name != name {
        return error(StatusCode::NOT_FOUND, "NoSuchBucket");
    }
    if state.objects.remove(&key).is_some()
        && let Err(failed) = state.stored.append(Journal::DELETED_OBJECTS, &key)
    {
        tracing::error!(error = &failed as &dyn std::error::Error, "cannot store that an object was deleted");
        return error(StatusCode::INTERNAL_SERVER_ERROR, "InternalError");
    }
    StatusCode::NO_CONTENT.into_response()
}
