//! Functions as Lambda runs them: a program in a process of its own, which gets its events over the Lambda Runtime API.
//!
//! Left out: more than one process of a function at a time, extensions, response streams, limits of memory and of the
//! size of an event.
//!
//! A [`LocalFunction`] starts its program when it is first invoked, and again after it has ended. `runtime_api`: the API that the
//! program calls.

mod runtime_api;

use self::runtime_api::{FunctionFailure, RuntimeApi};

use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::{Child, Command};
use tokio::sync::Mutex;

#[derive(Clone, Debug)]
pub struct FunctionProgram {
    pub name: String,
    /// The file that is executed. It writes to the standard error of this process.
    pub path: PathBuf,
    /// Variables besides those of this process.
    pub environment: Vec<(String, String)>,
    /// How long an invocation may take, the start of the program included.
    pub timeout: Duration,
}

/// A function that is ready to be invoked. Dropping it ends its process.
#[derive(Debug)]
pub struct LocalFunction {
    program: FunctionProgram,
    process: Mutex<Option<Process>>,
}

/// Why an invocation has no response.
#[derive(Debug, thiserror::Error)]
pub enum InvocationError {
    #[error("cannot start {}", path.display())]
    NotStarted { path: PathBuf, source: io::Error },
    #[error("it failed: {0}")]
    Failed(String),
    #[error("it could not be initialized: {0}")]
    NotInitialized(String),
    #[error("its program ended: {0}")]
    Ended(String),
    #[error("it timed out after {0:?}")]
    TimedOut(Duration),
}

#[derive(Debug)]
struct Process {
    child: Child,
    api: RuntimeApi,
}

impl LocalFunction {
    /// A function. Its program is started by the first invocation.
    pub fn new(program: FunctionProgram) -> Self {
        Self { program, process: Mutex::default() }
    }

    pub fn name(&self) -> &str {
        &self.program.name
    }

    /// Invokes the function with an event, and returns its response. Invocations take place one after the other.
    pub async fn invoke(&self, event: String) -> Result<String, InvocationError> {
        let mut running = self.process.lock().await;
        if let Some(process) = running.as_mut()
            && !matches!(process.child.try_wait(), Ok(None))
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
            result = process.api.invoke(event, timeout) => result.map_err(|failure| match failure {
                FunctionFailure::OfInvocation(error) => InvocationError::Failed(error),
                FunctionFailure::OfInitialization(error) => InvocationError::NotInitialized(error),
            }),
            ended = process.child.wait() => {
                let status = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
                Err(InvocationError::Ended(status))
            }
            () = tokio::time::sleep(timeout) => Err(InvocationError::TimedOut(timeout)),
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
        let FunctionProgram { name, path, environment, .. } = &self.program;
        let not_started = |source| InvocationError::NotStarted { path: path.clone(), source };
        let api = RuntimeApi::start(name).await.map_err(not_started)?;
        let of_lambda = [
            ("AWS_LAMBDA_RUNTIME_API", api.address()),
            ("AWS_LAMBDA_FUNCTION_NAME", name.as_str()),
            ("AWS_LAMBDA_FUNCTION_VERSION", "$LATEST"),
            ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "128"),
            ("AWS_LAMBDA_LOG_GROUP_NAME", "local"),
            ("AWS_LAMBDA_LOG_STREAM_NAME", "local"),
        ];
        let child = Command::new(path)
            .envs(of_lambda)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(io::stderr())
            .kill_on_drop(true)
            .spawn()
            .map_err(not_started)?;
        Ok(Process { child, api })
    }
}
