//! Code around the handler of every Lambda: logs, metrics, traces, AWS configuration, the start and end of its process, and the
//! input and output of a function behind a queue.
//!
//! Invariant: a function that cannot start logs why and exits. It never starts and then fails its requests.

mod aws;
mod errors;
mod metrics;
mod process;
mod queue_batch;
pub mod traces;

pub use aws::{aws_config, aws_config_at, aws_config_in_lambda};
pub use aws_config::SdkConfig;
pub use errors::{shortened, tls_error, with_causes};
pub use lambda_runtime::Error;
pub use metrics::{FailureCounter, Metrics};
pub use process::{export_spans, handle_invocations, log_failed_warm_up, log_levels, run};
pub use queue_batch::{QueueBatch, QueueFailure, QueueRecord, QueueResponse};
