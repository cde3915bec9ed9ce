//! The version of the functions that is used now, and how it is called.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderValue, Method, StatusCode};
use axum::response::Response;
use daybook_event_source_mapping::InvocationOutcome;
use daybook_local_aws::clock::Ahead;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::update_requests::UpdateRequests;
use super::version::Version;
use crate::faults::ViewFaultScript;
use crate::servers::problem;
use crate::usage::Usage;

/// How long a request of the stack may take. Functions that have come to a standstill can still be replaced.
const STACK_TIMEOUT: Duration = Duration::from_secs(2);

/// The beginning of the paths of the console's stylesheet, script and icon, which are those of the release.
const CONSOLE_FILES: &str = concat!("/_console/", env!("CARGO_PKG_VERSION"), "/");

/// The header of a response of functions that are not those of the sources.
const PREVIOUS_FUNCTIONS: &str = "x-daybook-previous-functions";

/// Why a function or the stack's request to it failed.
type CallFailure = Box<dyn std::error::Error + Send + Sync>;

/// The functions of the stack. Clones share the current version.
#[derive(Clone)]
pub(crate) struct Functions {
    current: Arc<RwLock<Version>>,
    updates: Option<UpdateRequests>,
}

/// A function that is invoked with events.
#[derive(Clone)]
pub(crate) struct Function {
    pub(crate) name: &'static str,
    functions: Functions,
}

impl Functions {
    /// Functions that stay as they are, or with `updates` those of the sources at each request.
    pub(crate) fn new(version: Version, updates: Option<UpdateRequests>) -> Self {
        Self { current: Arc::new(RwLock::new(version)), updates }
    }

    /// Uses another version from now on, with the faults that are not used up. Calls that have begun continue with the old
    /// version. Returns the calls that the old version has counted.
    pub(crate) async fn replace(&self, version: Version) -> Usage {
        let next = Self::new(version.clone(), None);
        let left = self.replace_view_faults(&ViewFaultScript::default()).await;
        next.replace_view_faults(&left).await;
        let usage = self.take_usage().await;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = version;
        usage
    }

    /// Has no functions from now on, so that a process of theirs ends after the calls that have begun.
    pub(crate) fn end(&self) {
        let stops =
            || problem(StatusCode::SERVICE_UNAVAILABLE, "about:blank", "Service unavailable", "the local stack stops");
        let nothing = Router::new().fallback(async move || stops());
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Version::new(nothing.clone(), nothing);
    }

    pub(crate) fn function(&self, name: &'static str) -> Function {
        Function { name, functions: self.clone() }
    }

    /// The response of the API or the console, after a pending update. If the functions are not those of the sources, a header
    /// contains the reason.
    pub(crate) async fn respond(&self, request: Request) -> Response {
        let mut updated = Ok(());
        if let Some(updates) = self.updates.as_ref().filter(|_| !request.uri().path().starts_with(CONSOLE_FILES)) {
            updated = updates.send().await;
        }
        let mut response = self.version().respond(request).await;
        if let Err(reason) = updated {
            response.headers_mut().insert(PREVIOUS_FUNCTIONS, HeaderValue::from_static(reason));
        }
        response
    }

    /// The calls that the functions have counted since this was called last.
    pub(crate) async fn take_usage(&self) -> Usage {
        self.request_json(Method::POST, "/usage", &()).await
    }

    /// Replaces the faults of the calls to the views table. Returns those that were left.
    pub(crate) async fn replace_view_faults(&self, faults: &ViewFaultScript) -> ViewFaultScript {
        self.request_json(Method::PUT, "/view-faults", faults).await
    }

    /// Moves the clock of functions that run in another process, so that it is this far ahead.
    pub(crate) async fn advance_clock(&self, ahead: Ahead) {
        self.request_json(Method::PUT, "/clock", &ahead).await
    }

    fn version(&self) -> Version {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The response to a request of the stack; the default if the functions do not respond.
    async fn request_json<T: DeserializeOwned + Default>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> T {
        let body = serde_json::to_string(body).unwrap_or_default();
        let response = tokio::time::timeout(STACK_TIMEOUT, self.request(method, path, body)).await;
        match response.unwrap_or_else(|_| Err("they timed out".into())) {
            Ok(response) => serde_json::from_str(&response).unwrap_or_default(),
            Err(error) => {
                tracing::warn!(path, error, "the functions do not respond to the stack");
                T::default()
            }
        }
    }

    async fn request(&self, method: Method, path: &str, body: String) -> Result<String, CallFailure> {
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let response = self.version().control(request.body(Body::from(body))?).await;
        let is_success = response.status().is_success();
        let text = String::from_utf8(to_bytes(response.into_body(), usize::MAX).await?.into())?;
        if is_success { Ok(text) } else { Err(text.into()) }
    }
}

impl Function {
    /// Invokes the function with a JSON event, for a JSON response, as Lambda does. A time-out, a panic or the end of its process
    /// ends the invocation.
    pub(crate) async fn invoke(&self, event: String, timeout: Duration) -> InvocationOutcome {
        self.invoke_until(event, timeout, timeout).await
    }

    /// As [`invoke`](Self::invoke), but ends the function after `killed_after`, without a notice to it.
    pub(crate) async fn invoke_until(
        &self,
        event: String,
        timeout: Duration,
        killed_after: Duration,
    ) -> InvocationOutcome {
        let path = format!("/invocations/{}/{}", self.name, timeout.as_millis());
        let response = self.functions.request(Method::POST, &path, event);
        let error = match tokio::time::timeout(killed_after, response).await {
            Ok(Ok(response)) => return InvocationOutcome::Returned(response),
            Ok(Err(error)) => error,
            Err(_) => format!("it timed out after {killed_after:?}").into(),
        };
        tracing::error!(function = self.name, error, "the function failed");
        InvocationOutcome::FunctionError
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn files_of_the_console_do_not_wait_for_a_build() {
        let routes = Router::new().fallback(async || "a file");
        let (updates, _queue) = UpdateRequests::new();
        let functions = Functions::new(Version::new(routes.clone(), routes), Some(updates));
        let began = tokio::time::Instant::now();
        for (path, waits) in [(format!("{CONSOLE_FILES}console.css"), false), ("/_console/bus".to_owned(), true)] {
            let response = functions.respond(Request::get(path).body(Body::empty()).unwrap()).await;
            assert_eq!(response.headers().contains_key(PREVIOUS_FUNCTIONS), waits);
            assert_eq!(began.elapsed() > Duration::from_secs(1), waits);
        }
    }

    #[tokio::test]
    async fn request_after_the_end_of_the_functions_is_not_answered_as_if_nothing_existed() {
        let routes = Router::new().fallback(async || "a todo");
        let functions = Functions::new(Version::new(routes.clone(), routes), None);
        let get = || Request::get("/todo/1").body(Body::empty()).unwrap();
        assert_eq!(functions.respond(get()).await.status(), StatusCode::OK);
        functions.end();
        assert_eq!(functions.respond(get()).await.status(), StatusCode::SERVICE_UNAVAILABLE);
    }
}
