//! The process of a function, from its logs to its exit code.

use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::SystemTime;

use daybook_settings::Environment;
use lambda_runtime::{Error, LambdaEvent, service_fn};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{fmt, registry};

use crate::errors::with_causes;
use crate::metrics::Metrics;
use crate::traces::SpanExporter;

static SPAN_EXPORTER: OnceLock<SpanExporter> = OnceLock::new();

/// Runs a function until Lambda ends its process, with logs as JSON lines on standard output, the format that
/// CloudWatch Logs Insights queries. `RUST_LOG` sets the level, `info` by default. An error of the function is logged
/// in the same format.
pub async fn run(function: impl Future<Output = Result<(), Error>>) -> ExitCode {
    let ended = match start_logs_and_traces() {
        Ok(()) => function.await,
        Err(error) => Err(error),
    };
    let Err(error) = ended else { return ExitCode::SUCCESS };
    tracing::error!(error = with_causes(&*error), "the function cannot run");
    ExitCode::FAILURE
}

/// Starts the logs, and the traces if there is a collector. The level of the logs does not concern spans.
fn start_logs_and_traces() -> Result<(), Error> {
    let environment = Environment::of_process();
    let filter = log_levels(&environment, Targets::new().with_default(LevelFilter::INFO));
    let service_name = environment.optional("AWS_LAMBDA_FUNCTION_NAME").unwrap_or_else(|| "daybook".to_owned());
    let exporter = SpanExporter::read(&environment, &service_name);
    let logs = fmt::layer().json().flatten_event(true).with_current_span(false);
    let Ok(Some(exporter)) = exporter else {
        registry().with(logs).with(filter).init();
        return exporter.map(drop).map_err(Into::into);
    };
    registry().with(logs.with_filter(filter)).with(exporter.layer()).init();
    SPAN_EXPORTER.get_or_init(|| exporter);
    Ok(())
}

/// The levels of the logs: those of `RUST_LOG`, such as `warn,hyper=debug`, or these if it is missing or invalid. An `EnvFilter`
/// would compile regular expressions for the fields of spans at each start.
pub fn log_levels(environment: &Environment, default: Targets) -> Targets {
    // An empty level would mean errors only.
    let is_valid = |levels: &String| levels.split(',').all(|level| !level.trim().is_empty());
    let levels = environment.optional("RUST_LOG").filter(is_valid);
    levels.and_then(|levels| levels.parse().ok()).unwrap_or(default)
}

/// Sends the spans of an invocation to the collector, if there is one. To be called before the response, because Lambda
/// freezes the process after it.
pub async fn export_spans() {
    if let Some(exporter) = SPAN_EXPORTER.get() {
        exporter.flush().await;
    }
}

/// Passes the payload of each invocation to `handle` with the invocation's deadline. Writes the metrics and exports the
/// spans afterwards.
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
        export_spans().await;
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

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn levels_of_the_logs_are_those_of_rust_log_if_it_is_valid() {
        let levels = |rust_log: &str| {
            let environment: Environment = [("RUST_LOG", rust_log)].into_iter().collect();
            log_levels(&environment, Targets::new().with_default(LevelFilter::INFO))
        };
        let some = levels("warn,hyper=debug");
        assert!(some.would_enable("hyper::client", &Level::DEBUG));
        assert!(some.would_enable("daybook", &Level::WARN) && !some.would_enable("daybook", &Level::INFO));
        for default in ["", "info,", "hyper=loud"] {
            assert_eq!(levels(default), Targets::new().with_default(LevelFilter::INFO), "{default:?}");
        }
    }
}
