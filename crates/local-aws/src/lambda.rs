//! Functions as Lambda runs them: a program in a process of its own, which gets its events over the Lambda Runtime API.
//!
//! Left out: more than one process of a function at a time, extensions, response streams, limits of memory and of the
//! size of an event.
//!
//! A [`LocalFunction`] starts its program when it is first invoked, and again after it has ended or the clock was moved. The
//! program calls a `RuntimeApi`: `next`, `response` and `error` of an invocation, and the error of an initialization.

use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};
use tokio::process::{Child, Command};
use tokio::sync::{Notify, oneshot};

use crate::clock::{Ahead, LocalClock};
use crate::server::Server;

#[derive(Clone, Debug)]
pub struct FunctionProgram {
    pub name: String,
    /// The file that is executed. It writes to the standard error of this process.
    pub path: PathBuf,
    /// Variables besides those of this process.
    pub environment: Vec<(String, String)>,
    /// The program finds in `CLOCK_AHEAD_SECONDS` how far this clock is ahead, and is started again after it was moved.
    pub clock: LocalClock,
    /// How long an invocation may take, the start of the program included.
    pub timeout: Duration,
}

/// A function that is ready to be invoked. Dropping it ends its process.
#[derive(Debug)]
pub struct LocalFunction {
    program: FunctionProgram,
    process: tokio::sync::Mutex<Option<Process>>,
}

#[derive(Debug, thiserror::Error)]
pub enum InvocationError {
    #[error("cannot start {}", path.display())]
    NotStarted { path: PathBuf, source: io::Error },
    #[error("it failed: {0}")]
    Failed(String),
    /// Its process ended or must be ended.
    #[error("{0}")]
    Ended(String),
}

#[derive(Debug)]
struct Process {
    child: Child,
    api: RuntimeApi,
    /// How far the clock was ahead when it started.
    ahead: Ahead,
}

impl LocalFunction {
    /// A function. Its program is started by the first invocation.
    pub fn new(program: FunctionProgram) -> Self {
        Self { program, process: tokio::sync::Mutex::default() }
    }

    /// Invokes the function with an event, and returns its response. Invocations take place one after the other.
    pub async fn invoke(&self, event: String) -> Result<String, InvocationError> {
        let mut running = self.process.lock().await;
        if let Some(process) = running.as_mut()
            && (process.ahead != self.program.clock.ahead() || !matches!(process.child.try_wait(), Ok(None)))
        {
            *running = None;
        }
        let process = match running.as_mut() {
            Some(process) => process,
            None => running.insert(self.start().await?),
        };
        let timeout = self.program.timeout;
        let result = tokio::select! {
            biased;
            result = process.api.invoke(event, timeout) => result,
            ended = process.child.wait() => {
                let status = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
                Err(InvocationError::Ended(format!("its program ended: {status}")))
            }
            () = tokio::time::sleep(timeout) => Err(InvocationError::Ended(format!("it timed out after {timeout:?}"))),
        };
        if !matches!(result, Ok(_) | Err(InvocationError::Failed(_)))
            && let Some(mut process) = running.take()
        {
            // Fails only if the process has ended.
            drop(process.child.kill().await);
        }
        result
    }

    async fn start(&self) -> Result<Process, InvocationError> {
        let FunctionProgram { name, path, environment, clock, .. } = &self.program;
        let ahead = clock.ahead();
        let not_started = |source| InvocationError::NotStarted { path: path.clone(), source };
        let api = RuntimeApi::start(name).await.map_err(not_started)?;
        let of_lambda = [
            ("AWS_LAMBDA_RUNTIME_API", api.server.url().trim_start_matches("http://")),
            ("AWS_LAMBDA_FUNCTION_NAME", name.as_str()),
            ("AWS_LAMBDA_FUNCTION_VERSION", "$LATEST"),
            ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "128"),
            ("AWS_LAMBDA_LOG_GROUP_NAME", "local"),
            ("AWS_LAMBDA_LOG_STREAM_NAME", "local"),
        ];
        let child = Command::new(path)
            .envs(of_lambda)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .env("CLOCK_AHEAD_SECONDS", ahead.seconds.to_string())
            .stdin(Stdio::null())
            .stdout(io::stderr())
            .kill_on_drop(true)
            .spawn()
            .map_err(not_started)?;
        Ok(Process { child, api, ahead })
    }
}

/// Maximum bytes of a response: 6 MB, as in Lambda.
const MAX_RESPONSE: usize = 6 * 1024 * 1024;

#[derive(Debug)]
struct RuntimeApi {
    server: Server,
    calls: Calls,
}

/// What the calls of the program share with the invocation.
#[derive(Clone, Debug)]
struct Calls {
    arn: String,
    current: Arc<Mutex<Current>>,
    /// Wakes a waiting `next`.
    invoked: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Current {
    invocation: Option<Invocation>,
    invocations: u64,
}

#[derive(Debug)]
struct Invocation {
    request_id: String,
    /// `None` once the program has it.
    event: Option<String>,
    /// Milliseconds since 1970.
    deadline: u128,
    result: oneshot::Sender<Result<String, InvocationError>>,
}

impl RuntimeApi {
    async fn start(function: &str) -> io::Result<Self> {
        let arn = format!("arn:aws:lambda:us-east-1:000000000000:function:{function}");
        let calls = Calls { arn, current: Arc::default(), invoked: Arc::default() };
        let router = Router::new()
            .route("/2018-06-01/runtime/invocation/next", get(next))
            .route("/2018-06-01/runtime/invocation/{id}/response", post(response))
            .route("/2018-06-01/runtime/invocation/{id}/error", post(error))
            .route("/2018-06-01/runtime/init/error", post(initialization_error))
            .layer(DefaultBodyLimit::max(MAX_RESPONSE))
            .with_state(calls.clone());
        Ok(Self { server: Server::start(router).await?, calls })
    }

    /// Passes an event to the program, and waits for its result, without a time limit.
    async fn invoke(&self, event: String, timeout: Duration) -> Result<String, InvocationError> {
        let (result, returned) = oneshot::channel();
        {
            let mut current = self.calls.current();
            current.invocations += 1;
            let request_id = format!("00000000-0000-4000-8000-{:012x}", current.invocations);
            let deadline = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() + timeout;
            current.invocation =
                Some(Invocation { request_id, event: Some(event), deadline: deadline.as_millis(), result });
        }
        self.calls.invoked.notify_one();
        // The sender is dropped only with this API.
        returned.await.unwrap_or_else(|_| Err(InvocationError::Failed("it was not finished".to_owned())))
    }
}

impl Calls {
    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn finish(&self, id: &str, result: Result<String, InvocationError>) -> Response {
        let mut current = self.current();
        match current.invocation.take_if(|invocation| invocation.request_id == id && invocation.event.is_none()) {
            Some(invocation) => {
                // Fails after a time-out; the process is about to end then.
                drop(invocation.result.send(result));
                accepted()
            }
            None => {
                let error = json!({"errorType": "InvalidRequestID", "errorMessage": "Invalid request ID"});
                (StatusCode::BAD_REQUEST, error.to_string()).into_response()
            }
        }
    }
}

fn accepted() -> Response {
    (StatusCode::ACCEPTED, json!({"status": "OK"}).to_string()).into_response()
}

async fn next(State(calls): State<Calls>) -> Response {
    loop {
        if let Some(invocation) = &mut calls.current().invocation
            && let Some(event) = invocation.event.take()
        {
            let headers = [
                ("Lambda-Runtime-Aws-Request-Id", invocation.request_id.clone()),
                ("Lambda-Runtime-Deadline-Ms", invocation.deadline.to_string()),
                ("Lambda-Runtime-Invoked-Function-Arn", calls.arn.clone()),
                ("Content-Type", "application/json".to_owned()),
            ];
            return (headers, event).into_response();
        }
        calls.invoked.notified().await;
    }
}

async fn response(State(calls): State<Calls>, Path(id): Path<String>, body: String) -> Response {
    calls.finish(&id, Ok(body))
}

async fn error(State(calls): State<Calls>, Path(id): Path<String>, body: String) -> Response {
    calls.finish(&id, Err(InvocationError::Failed(reported(&body))))
}

async fn initialization_error(State(calls): State<Calls>, body: String) -> Response {
    if let Some(invocation) = calls.current().invocation.take() {
        let reason = format!("it could not be initialized: {}", reported(&body));
        drop(invocation.result.send(Err(InvocationError::Ended(reason))));
    }
    accepted()
}

/// The error in a body, as `TYPE: MESSAGE`, or the body if it is not an error of this form.
fn reported(body: &str) -> String {
    let error: Value = serde_json::from_str(body).unwrap_or_default();
    match (error["errorType"].as_str(), error["errorMessage"].as_str()) {
        (Some(kind), Some(message)) => format!("{kind}: {message}"),
        _ => body.to_owned(),
    }
}
