//! One version of the functions: two HTTP services, in this process or in another.

use std::convert::Infallible;

use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use tokio::sync::mpsc;
use tower::ServiceExt;

/// Keeps the process of a version running. The process ends after all clones are dropped.
pub(crate) type Lease = mpsc::Sender<Infallible>;

/// A version of the functions. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    /// The API and the console, for all clients.
    pub(crate) api: Router,
    /// Invocations with events, and the requests of the stack.
    pub(crate) control: Router,
    _lease: Option<Lease>,
}

impl Version {
    /// Functions in this process.
    pub(crate) fn new(api: Router, control: Router) -> Self {
        Self { api, control, _lease: None }
    }

    /// Functions in another process, whose services these routers call.
    pub(crate) fn of_process(api: Router, control: Router, lease: Lease) -> Self {
        Self { api, control, _lease: Some(lease) }
    }

    pub(super) async fn respond(&self, request: Request) -> Response {
        call(&self.api, request).await
    }

    pub(super) async fn control(&self, request: Request) -> Response {
        call(&self.control, request).await
    }
}

async fn call(router: &Router, request: Request) -> Response {
    match router.clone().oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}
