//! The process of a function, from its logs to its exit code.

use std::process::ExitCode;
use std::time::SystemTime;

use lambda_runtime::{Error, LambdaEvent, service_fn};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use tracing_subscriber::EnvFilter;

use crate::errors::with_causes;
use crate::metrics::Metrics;

/// Runs a function until Lambda ends its process, with logs as JSON lines on standard output, the format that
/// CloudWatch Logs Insights queries. `RUST_LOG` sets the level, `info` by default. An error of the function is logged
/// in the same format.
pub async fn run(function: impl Future<Output = Result<(), Error>>) -> ExitCode {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().json().flatten_event(true).with_current_span(false).with_env_filter(filter).init();
    let Err(error) = function.await else { return ExitCode::SUCCESS };
    tracing::error!(error = with_causes(&*error), "the function cannot run");
    ExitCode::FAILURE
}

/// Passes the payload of each invocation to `handle` with the invocation's deadline, and writes the metrics
/// afterwards.
///
/// # Errors
///
/// When Lambda's runtime API fails.
pub async fn handle_invocations<P, R, E>(
    metrics: Metrics,
    handle: impl AsyncFn(P, Instant) -> Result<R, E>,
) -> Result<(), Error>
where
    P: DeserializeOwned,
    R: Serialize,
    E: Into<Error>,
{
    let handle = &handle;
    let invoke = async |event: LambdaEvent<P>| {
        let left = event.context.deadline().duration_since(SystemTime::now()).unwrap_or_default();
        let response = handle(event.payload, Instant::now() + left).await;
        metrics.write();
        response.map_err(Into::into)
    };
    lambda_runtime::run(service_fn(invoke)).await
}

/// Logs that a service could not be reached during initialization. The first request tries again, and reports the
/// error.
pub fn log_failed_warm_up(warmed: Result<(), impl std::error::Error>) {
    if let Err(error) = warmed {
        tracing::warn!(error = with_causes(&error), "a service could not be reached ahead of the first request");
    }
}
