//! The projector as a Lambda function behind the queue of changed aggregates.

use std::process::ExitCode;

use daybook_event_store::{EventStore, StoreSettings};
use daybook_function_runtime::{Error, Metrics, aws_config_in_lambda, handle_invocations, log_failed_warm_up};
use daybook_projector::{Projector, QueueBatch, views_table};
use daybook_settings::Environment;
use daybook_view_store::ViewStore;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    daybook_function_runtime::run(run()).await
}

async fn run() -> Result<(), Error> {
    let environment = Environment::of_process();
    let metrics = Metrics::collect(&environment);
    let settings = StoreSettings::new(environment.required("TABLE_NAME")?);
    let views_table = views_table(&environment)?;
    let config = aws_config_in_lambda(&environment).await?;
    let events = EventStore::new(&config, settings);
    log_failed_warm_up(events.warm().await);
    let projector = Projector::new(projections::projections()?, events, ViewStore::new(&config, views_table))
        .with_function_version(environment.optional("AWS_LAMBDA_FUNCTION_VERSION"));
    handle_invocations(metrics, async |batch: QueueBatch, deadline| {
        Ok::<_, Error>(projector.handle(batch, deadline).await)
    })
    .await
}
