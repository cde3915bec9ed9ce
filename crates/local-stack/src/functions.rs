//! The functions of the stack: the version that is used now, how it is called, and how that of the sources is asked for. A
//! version is two HTTP services, in this process or in another.

mod code;
mod handlers;

use std::convert::Infallible;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode};
use axum::response::Response;
use daybook_event_source_mapping::InvocationOutcome;
use daybook_local_aws::clock::{Ahead, LocalClock};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::{RwLockWriteGuard, oneshot, watch};
use tokio::time::{Instant, timeout, timeout_at};
use tower::ServiceExt;

use crate::servers::{CallFailure, call, problem};
use crate::usage::{Traffic, Usage};

pub(crate) use code::{ConsoleSettings, FunctionSettings, Variables, function_of, start};

/// How long a request of the stack may take. Functions that have come to a standstill can still be replaced.
const STACK_TIMEOUT: Duration = Duration::from_secs(2);

/// The beginning of the paths of the console's stylesheet, script and icon, which are those of the release.
const CONSOLE_FILES: &str = concat!("/_console/", env!("CARGO_PKG_VERSION"), "/");

const PREVIOUS_FUNCTIONS: HeaderName = HeaderName::from_static(daybook_console::stack::PREVIOUS_FUNCTIONS);

/// The functions of the stack. Clones share the current version.
#[derive(Clone)]
pub(crate) struct Functions {
    current: Arc<RwLock<FunctionsVersion>>,
    /// Read by each call of the API, and written while the version is replaced.
    calls: Arc<tokio::sync::RwLock<()>>,
    /// Read by each call and by the reactor, and written while the clock is moved.
    moves: Arc<tokio::sync::RwLock<()>>,
    pub(crate) traffic: Traffic,
    updates: Option<UpdateRequests>,
}

#[derive(Clone)]
pub(crate) struct Function {
    pub(crate) name: &'static str,
    functions: Functions,
}

impl Functions {
    /// Functions that stay as they are, or with `updates` those of the sources at each request.
    pub(crate) fn new(version: FunctionsVersion, updates: Option<UpdateRequests>) -> Self {
        Self {
            current: Arc::new(RwLock::new(version)),
            calls: Arc::default(),
            moves: Arc::default(),
            traffic: Traffic::default(),
            updates,
        }
    }

    /// Uses another version from now on, with a clock that is as far ahead. Returns the calls that the old version has counted.
    ///
    /// Calls that have begun continue with the old version. Later ones wait for them, because a feed shows when it is
    /// complete by the decisions in flight of its own process. They do not wait for functions that have come to a standstill.
    pub(crate) async fn replace(&self, version: FunctionsVersion, clock: &LocalClock) -> Usage {
        let _calls = timeout(STACK_TIMEOUT, self.calls.write()).await;
        let usage = self.take_usage().await;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = version;
        // It may have been moved while the new process started.
        self.advance_clock(clock.ahead()).await;
        usage
    }

    /// Has no functions from now on, so that a process of theirs ends after the calls that have begun.
    pub(crate) fn end(&self) {
        let stops =
            || problem(StatusCode::SERVICE_UNAVAILABLE, "about:blank", "Service unavailable", "the local stack stops");
        let none = Router::new().fallback(async move || stops());
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = FunctionsVersion::new(none.clone(), none, None);
    }

    pub(crate) fn function(&self, name: &'static str) -> Function {
        Function { name, functions: self.clone() }
    }

    /// The response of the API or the console, after a pending update. If the functions are not those of the sources, a header
    /// contains the reason; the console gets it with the request.
    pub(crate) async fn respond(&self, mut request: Request) -> Response {
        let mut updated = Ok(());
        if let Some(updates) = self.updates.as_ref().filter(|_| !request.uri().path().starts_with(CONSOLE_FILES)) {
            updated = updates.send().await;
        }
        let reason = updated.err().map(HeaderValue::from_static);
        request.headers_mut().extend(reason.clone().map(|reason| (PREVIOUS_FUNCTIONS, reason)));
        let path = request.uri().path();
        let is_api = !path.starts_with("/_console");
        // This page moves the clock.
        let _move = if path == "/_console/faults" { None } else { Some(self.moves.read().await) };
        let (_call, began) = (self.calls.read().await, Instant::now());
        let mut response = self.version().api.oneshot(request).await.unwrap_or_else(|never| match never {});
        if is_api {
            self.traffic.count(began.elapsed());
        }
        response.headers_mut().extend(reason.map(|reason| (PREVIOUS_FUNCTIONS, reason)));
        response
    }

    /// Lets everything wait that appends events, as long as this is held. Before, waits for what has begun, for a limited time.
    pub(crate) async fn hold_writers(&self) -> Option<RwLockWriteGuard<'_, ()>> {
        let held = timeout(STACK_TIMEOUT, self.moves.write()).await;
        held.inspect_err(|_| tracing::warn!("a request takes longer: others do not wait while the clock is moved")).ok()
    }

    /// The calls that the functions have counted since this was called last.
    pub(crate) async fn take_usage(&self) -> Usage {
        self.request_json(Method::POST, "/usage", &()).await
    }

    /// Moves the clock of functions that run in another process, so that it is this far ahead.
    pub(crate) async fn advance_clock(&self, ahead: Ahead) {
        self.request_json(Method::PUT, "/clock", &ahead).await
    }

    fn version(&self) -> FunctionsVersion {
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
        let response = timeout(STACK_TIMEOUT, self.request(method, path, body)).await;
        match response.unwrap_or_else(|_| Err("they timed out".into())) {
            Ok(response) => serde_json::from_str(&response).unwrap_or_default(),
            Err(error) => {
                tracing::warn!(path, error, "the functions do not respond to the stack");
                T::default()
            }
        }
    }

    async fn request(&self, method: Method, path: &str, body: String) -> Result<String, CallFailure> {
        call(self.version().control, method, path, body).await
    }
}

impl Function {
    /// Invokes the function with a JSON event, for a JSON response, as Lambda does. A time-out, a panic or the end of its process
    /// ends the invocation; `killed_after` ends it earlier, without a notice to the function.
    pub(crate) async fn invoke(
        &self,
        event: String,
        timeout: Duration,
        killed_after: Option<Duration>,
    ) -> InvocationOutcome {
        let _move = if self.name == "reactor" { Some(self.functions.moves.read().await) } else { None };
        let killed_after = killed_after.unwrap_or(timeout);
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

/// Keeps the process of a version running: the process ends when nobody holds the lease, that is, after the last request that
/// has begun on this version has its response.
pub(crate) type Lease = mpsc::Sender<Infallible>;

/// A version of the functions. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct FunctionsVersion {
    /// The API and the console, for all clients.
    pub(crate) api: Router,
    /// Invocations with events, and the requests of the stack.
    pub(crate) control: Router,
    _lease: Option<Lease>,
}

impl FunctionsVersion {
    /// Without a lease, the functions are in this process.
    pub(crate) fn new(api: Router, control: Router, lease: Option<Lease>) -> Self {
        Self { api, control, _lease: lease }
    }
}

/// How long requests to the API wait for a build. API Gateway responds after 30 seconds at the latest.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Is answered when the version of the sources is used, or with the reason why the functions stay the previous ones.
pub(crate) type UpdateRequest = oneshot::Sender<Result<(), &'static str>>;

#[derive(Clone, Debug)]
pub(crate) struct UpdateRequests {
    requests: UnboundedSender<UpdateRequest>,
    /// When the build that runs now has begun.
    build_began: watch::Receiver<Option<Instant>>,
}

pub(crate) struct UpdateQueue {
    pub(crate) requests: UnboundedReceiver<UpdateRequest>,
    /// When the build that runs now has begun; `None` if none runs.
    pub(crate) build_began: watch::Sender<Option<Instant>>,
}

impl UpdateRequests {
    pub(crate) fn new() -> (Self, UpdateQueue) {
        let (sender, requests) = mpsc::unbounded_channel();
        let (build_began, began) = watch::channel(None);
        (Self { requests: sender, build_began: began }, UpdateQueue { requests, build_began })
    }

    /// Waits until the functions are those of the sources as they are now. The wait ends some time after the build has begun, so
    /// that requests during a long build do not wait one after the other.
    async fn send(&self) -> Result<(), &'static str> {
        let (request, answered) = oneshot::channel();
        if self.requests.send(request).is_err() {
            return Ok(());
        }
        let now = Instant::now();
        let until = self.build_began.borrow().unwrap_or(now) + MAX_WAIT;
        match timeout_at(until, answered).await {
            // Without an answer, the stack stops.
            Ok(answer) => answer.unwrap_or(Ok(())),
            Err(_) => {
                let reason = "the build takes longer than 30 seconds";
                if now < until {
                    eprintln!("daybook: a request gets its response from the previous functions, because {reason}");
                }
                Err(reason)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn files_of_the_console_do_not_wait_for_a_build() {
        let routes = Router::new().fallback(async || "a file");
        let (updates, _queue) = UpdateRequests::new();
        let functions = Functions::new(FunctionsVersion::new(routes.clone(), routes, None), Some(updates));
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
        let functions = Functions::new(FunctionsVersion::new(routes.clone(), routes, None), None);
        let get = || Request::get("/todo/1").body(Body::empty()).unwrap();
        assert_eq!(functions.respond(get()).await.status(), StatusCode::OK);
        functions.end();
        assert_eq!(functions.respond(get()).await.status(), StatusCode::SERVICE_UNAVAILABLE);
    }

    #[tokio::test(start_paused = true)]
    async fn call_of_a_new_version_begins_after_those_of_the_old_one() {
        let second = Duration::from_secs(1);
        for (takes, order) in [
            (second, vec!["old begins", "old ends", "new begins", "new ends"]),
            // The old version has come to a standstill.
            (60 * second, vec!["old begins", "new begins", "new ends", "old ends"]),
        ] {
            let log = Arc::new(std::sync::Mutex::new(Vec::new()));
            let version = |begins: &'static str, takes: Duration, ends: &'static str| {
                let log = Arc::clone(&log);
                let call = async move || {
                    log.lock().unwrap().push(begins);
                    sleep(takes).await;
                    log.lock().unwrap().push(ends);
                };
                FunctionsVersion::new(Router::new().fallback(call), Router::new(), None)
            };
            let functions = Functions::new(version("old begins", takes, "old ends"), None);
            let call = || functions.respond(Request::get("/todo/1").body(Body::empty()).unwrap());
            let (new, clock) = (version("new begins", Duration::ZERO, "new ends"), LocalClock::default());
            let later = async {
                sleep(second / 2).await;
                call().await
            };
            tokio::join!(call(), functions.replace(new, &clock), later);
            assert_eq!(*log.lock().unwrap(), order);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn requests_wait_for_a_limited_time_after_the_build_has_begun_and_get_the_reason() {
        let (updates, queue) = UpdateRequests::new();
        let began = Instant::now();
        queue.build_began.send_replace(Some(began));
        // The first waits until the end of the time, the second does not wait.
        for _ in 0..2 {
            assert_eq!(updates.send().await, Err("the build takes longer than 30 seconds"));
            assert!((MAX_WAIT..MAX_WAIT + Duration::from_secs(1)).contains(&began.elapsed()), "{:?}", began.elapsed());
        }
        // Another build.
        queue.build_began.send_replace(None);
        let again = Instant::now();
        assert!(updates.send().await.is_err());
        assert!(again.elapsed() >= MAX_WAIT);
    }
}
