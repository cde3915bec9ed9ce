//! What every Lambda does once, before its first event: turn on its logs and metrics, configure AWS.
//!
//! Invariant: a function that cannot start ends here, with a line of its log that says why, and never surfaces as a failing
//! request.

mod aws;
mod metrics;

use std::process::ExitCode;

pub use aws::{aws_config, aws_config_at, aws_config_in_lambda};
pub use aws_config::SdkConfig;
pub use metrics::Metrics;
use tracing_subscriber::EnvFilter;

/// An error with its causes, in one line, for a log and for a person.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    std::iter::successors(error.source(), |cause| cause.source())
        .fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// Logs as JSON lines on standard output, the form that CloudWatch Logs Insights queries. `RUST_LOG` sets the level,
/// `info` by default.
pub fn logs() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().json().flatten_event(true).with_current_span(false).with_env_filter(filter).init();
}

/// Logs that a service could not be reached during initialisation. The first request tries again, and answers for it.
pub fn log_cold(warmed: Result<(), impl std::error::Error>) {
    if let Err(error) = warmed {
        tracing::warn!(error = with_causes(&error), "a service could not be reached ahead of the first request");
    }
}

/// How a function's process ends: an error is a line of its log like any other, for whoever watches the log.
pub fn end(ended: Result<(), Box<dyn std::error::Error + Send + Sync>>) -> ExitCode {
    let Err(error) = ended else { return ExitCode::SUCCESS };
    tracing::error!(error = with_causes(&*error), "the function cannot run");
    ExitCode::FAILURE
}
