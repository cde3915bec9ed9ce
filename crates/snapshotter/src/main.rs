//! The snapshotter as a Lambda function behind the table's stream.

use std::process::ExitCode;

use daybook_event_store::EventStore;
use daybook_function_runtime::Metrics;
use daybook_settings::Environment;
use daybook_snapshotter::{Snapshotter, StreamBatch, store_settings};
use lambda_runtime::{Error, LambdaEvent, service_fn};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    daybook_function_runtime::logs();
    daybook_function_runtime::end(run().await)
}

async fn run() -> Result<(), Error> {
    let environment = Environment::of_process();
    let metrics = Metrics::collect(&environment);
    let settings = store_settings(&environment)?;
    let store = EventStore::new(&daybook_function_runtime::aws_config_in_lambda(&environment).await, settings);
    daybook_function_runtime::log_cold(store.warm().await);
    let snapshotter = Snapshotter::new(aggregates::registry()?, store);
    let snapshotter = &snapshotter;
    let invoke = async |event: LambdaEvent<StreamBatch>| {
        let answer = snapshotter.invoke(event).await;
        metrics.write();
        answer
    };
    lambda_runtime::run(service_fn(invoke)).await
}
