//! What every Lambda does once, before its first event: read its settings, turn on its logs
//! and metrics, configure AWS.
//!
//! Invariant: a setting that is missing or wrong stops the function here, with a line of its log that names it, and never
//! surfaces as a failing request.

mod aws;
mod environment;
mod metrics;

use std::process::ExitCode;

pub use aws::{aws_config, aws_config_at, aws_config_in_lambda};
pub use aws_config::SdkConfig;
pub use environment::{Environment, SettingError};
pub use metrics::Metrics;
use tracing_subscriber::EnvFilter;

/// An error with its causes, in one line, for a log and for a person.
pub fn in_full(error: &dyn std::error::Error) -> String {
    std::iter::successors(error.source(), |cause| cause.source())
        .fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// Logs as JSON lines on standard output, the form that CloudWatch Logs Insights queries. `RUST_LOG` sets the level,
/// `info` by default.
pub fn logs() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().json().flatten_event(true).with_current_span(false).with_env_filter(filter).init();
}

/// How a function's process ends: an error is a line of its log like any other, for whoever watches the log.
pub fn end(ended: Result<(), Box<dyn std::error::Error + Send + Sync>>) -> ExitCode {
    let Err(error) = ended else { return ExitCode::SUCCESS };
    tracing::error!(error = in_full(&*error), "the function cannot run");
    ExitCode::FAILURE
}
