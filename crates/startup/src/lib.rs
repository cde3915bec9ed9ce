//! What every Lambda does once, before its first event: read its settings, turn on its logs
//! and metrics, configure AWS.
//!
//! Invariant: a setting that is missing or wrong stops the function here, with a message that names it, and never
//! surfaces as a failing request.

mod aws;
mod environment;
mod metrics;

pub use aws::{aws_config, aws_config_at, aws_config_in_lambda};
pub use aws_config::SdkConfig;
pub use environment::{Environment, SettingError};
pub use metrics::Metrics;
use tracing_subscriber::EnvFilter;

/// Logs as JSON lines on standard output, the form that CloudWatch Logs Insights queries. `RUST_LOG` sets the level,
/// `info` by default.
pub fn logs() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().json().flatten_event(true).with_current_span(false).with_env_filter(filter).init();
}
