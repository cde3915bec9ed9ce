//! The snapshotter as a Lambda function behind the table's stream.

use event_store::{EventStore, Settings};
use lambda_runtime::{Error, LambdaEvent, service_fn};
use snapshotter::{Snapshotter, StreamBatch};
use startup::Environment;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    startup::logs();
    let settings = Settings::read(&Environment::of_process())?;
    let store = EventStore::new(&startup::aws_config().await, settings);
    store.warm().await;
    let snapshotter = Snapshotter::new(aggregates::registry()?, store);
    let snapshotter = &snapshotter;
    let invoke = async |event: LambdaEvent<StreamBatch>| Ok::<_, Error>(snapshotter.handle(event.payload).await?);
    lambda_runtime::run(service_fn(invoke)).await
}
