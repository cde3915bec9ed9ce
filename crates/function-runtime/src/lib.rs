//! What every Lambda does around its handler: logs, metrics, AWS configuration, and how its process runs and ends.
//!
//! Invariant: a function that cannot start ends here, with a line of its log that says why, and never surfaces as a failing
//! request.

mod aws;
mod errors;
mod metrics;
mod process;

pub use aws::{aws_config, aws_config_at, aws_config_in_lambda};
pub use aws_config::SdkConfig;
pub use errors::with_causes;
pub use lambda_runtime::Error;
pub use metrics::Metrics;
pub use process::{handle_invocations, log_failed_warm_up, run};
