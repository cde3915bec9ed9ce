//! The reads of the API for operator commands: the same bodies, without the permissions of aggregate types.

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use daybook_decider::Registry;
use daybook_event_store::EventStore;
use lambda_http::tower::ServiceExt;
use tracing::instrument::WithSubscriber;
use tracing::subscriber::NoSubscriber;

use crate::api::Api;
use crate::endpoints::events_of_type::feed_of;
use crate::problem;
use crate::router::router;
use crate::settings::ApiSettings;

#[derive(Clone, Debug)]
pub struct ReadResponse {
    pub status: StatusCode,
    /// The body: JSON, of a problem too.
    pub body: Bytes,
    pub has_next: bool,
}

/// The reads of the API over a store, in this process. Nothing asks whether the reader may read an aggregate: an operator
/// who can read the table can read everything in it.
pub struct OperatorReads {
    api: Api,
    router: Router,
}

impl OperatorReads {
    pub fn new(registry: Registry, store: EventStore, settings: ApiSettings) -> Self {
        let api = Api { asks_for_permission: false, ..Api::new(registry, store, settings) };
        Self { router: router(api.clone()), api }
    }

    pub async fn get(&self, path_and_query: &str) -> ReadResponse {
        let request = Request::get(path_and_query).body(Body::empty());
        match request {
            Ok(request) => read(self.router.clone().oneshot(request)).await,
            Err(error) => read(async { problem::internal(error) }).await,
        }
    }

    /// A page of the feed of several event types. It has the form of a page of one type.
    pub async fn feed(&self, event_types: &[&str], after: Option<&str>, limit: usize) -> ReadResponse {
        read(feed_of(&self.api, event_types, after.map(str::to_owned), limit, true)).await
    }
}

/// Reads a response. Its problem is not logged: the operator gets it.
async fn read<T: IntoResponse>(response: impl Future<Output = T>) -> ReadResponse {
    let response = async { response.await.into_response() };
    let response = response.with_subscriber(NoSubscriber::default()).await;
    let (status, has_next) = (response.status(), response.headers().contains_key(header::LINK));
    match to_bytes(response.into_body(), usize::MAX).await {
        Ok(body) => ReadResponse { status, body, has_next },
        Err(error) => {
            let body = Bytes::from(error.to_string());
            ReadResponse { status: StatusCode::INTERNAL_SERVER_ERROR, body, has_next: false }
        }
    }
}
