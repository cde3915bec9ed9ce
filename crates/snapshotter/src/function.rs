//! The snapshotter as a Lambda function behind the table's stream.

use std::process::ExitCode;

use daybook_decider::{RegistrationError, Registry};
use daybook_event_store::{EventStore, StoreSettings};
use daybook_function_runtime::{Error, Metrics, aws_config_in_lambda, handle_invocations, log_failed_warm_up};
use daybook_settings::Environment;
use daybook_stream_batch::StreamBatch;

use crate::handler::Snapshotter;

type Aggregates = fn() -> Result<Registry, RegistrationError>;

/// Runs the snapshotter until Lambda ends its process: the `main` of the function. It exits with an error in the log if the
/// registration fails or a setting is invalid.
#[tokio::main(flavor = "current_thread")]
pub async fn run(aggregates: Aggregates) -> ExitCode {
    daybook_function_runtime::run(serve(aggregates)).await
}

async fn serve(aggregates: Aggregates) -> Result<(), Error> {
    let environment = Environment::of_process();
    let metrics = Metrics::collect(&environment);
    let settings = StoreSettings::read(&environment)?;
    let config = aws_config_in_lambda(&environment).await?;
    let store = EventStore::new(&config, settings).with_keys(&environment, &config)?;
    log_failed_warm_up(store.warm().await);
    let snapshotter = Snapshotter::new(aggregates()?, store);
    let snapshotter = snapshotter.with_function_version(environment.optional("AWS_LAMBDA_FUNCTION_VERSION"));
    handle_invocations(metrics, async |batch: StreamBatch, deadline| snapshotter.handle(batch, deadline).await).await
}
