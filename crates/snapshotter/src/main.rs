//! The snapshotter as a Lambda function behind the table's stream.

use std::process::ExitCode;

use event_store::{EventStore, Settings};
use lambda_runtime::{Error, LambdaEvent, service_fn};
use snapshotter::{Snapshotter, StreamBatch};
use startup::{Environment, Metrics};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    startup::logs();
    startup::end(run().await)
}

async fn run() -> Result<(), Error> {
    let environment = Environment::of_process();
    let metrics = Metrics::collect(&environment);
    let settings = Settings::read(&environment)?;
    let store = EventStore::new(&startup::aws_config_in_lambda(&environment).await, settings);
    store.warm().await;
    let snapshotter = Snapshotter::new(aggregates::registry()?, store);
    let snapshotter = &snapshotter;
    let invoke = async |event: LambdaEvent<StreamBatch>| {
        let answer = snapshotter.invoke(event).await;
        metrics.write();
        answer
    };
    lambda_runtime::run(service_fn(invoke)).await
}
