//! The snapshotter as a Lambda function behind the table's stream.

use std::process::ExitCode;

use daybook_event_store::EventStore;
use daybook_function_runtime::{Error, Metrics, aws_config_in_lambda, handle_invocations, log_failed_warm_up};
use daybook_settings::Environment;
use daybook_snapshotter::{Snapshotter, StreamBatch, store_settings};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    daybook_function_runtime::run(run()).await
}

async fn run() -> Result<(), Error> {
    let environment = Environment::of_process();
    let metrics = Metrics::collect(&environment);
    let settings = store_settings(&environment)?;
    let store = EventStore::new(&aws_config_in_lambda(&environment).await?, settings);
    log_failed_warm_up(store.warm().await);
    let snapshotter = Snapshotter::new(aggregates::registry()?, store);
    let snapshotter = snapshotter.with_function_version(environment.optional("AWS_LAMBDA_FUNCTION_VERSION"));
    handle_invocations(metrics, async |batch: StreamBatch, deadline| snapshotter.handle(batch, deadline).await).await
}
