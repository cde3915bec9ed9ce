//! The projector as a Lambda function behind the queue of changed aggregates.

use std::process::ExitCode;

use daybook_event_store::{EventStore, StoreSettings};
use daybook_function_runtime::{
    Error, Metrics, QueueBatch, aws_config_in_lambda, handle_invocations, log_failed_warm_up,
};
use daybook_projection::{ProjectionRegistrationError, Projections};
use daybook_settings::{Environment, SettingError};
use daybook_view_store::ViewStore;

use crate::handler::Projector;

type RegisteredProjections = fn() -> Result<Projections, ProjectionRegistrationError>;

/// The table of the views: `VIEWS_TABLE_NAME`.
pub fn views_table(environment: &Environment) -> Result<String, SettingError> {
    environment.required("VIEWS_TABLE_NAME")
}

/// Runs the projector until Lambda ends its process: the `main` of the function. It exits with an error in the log if
/// the registration fails or a setting is invalid.
pub fn run(projections: RegisteredProjections) -> ExitCode {
    run_with(projections, async |projector| Ok(projector))
}

/// Runs the projector as [`run`] does, after `prepare` has added targets to it.
#[tokio::main(flavor = "current_thread")]
pub async fn run_with(
    projections: RegisteredProjections,
    prepare: impl AsyncFnOnce(Projector) -> Result<Projector, Error>,
) -> ExitCode {
    daybook_function_runtime::run(serve(projections, prepare)).await
}

async fn serve(
    projections: RegisteredProjections,
    prepare: impl AsyncFnOnce(Projector) -> Result<Projector, Error>,
) -> Result<(), Error> {
    let environment = Environment::of_process();
    let metrics = Metrics::collect(&environment);
    let settings = StoreSettings::new(environment.required("TABLE_NAME")?);
    let views_table = views_table(&environment)?;
    let config = aws_config_in_lambda(&environment).await?;
    let events = EventStore::new(&config, settings).with_keys(&environment, &config)?;
    log_failed_warm_up(events.warm().await);
    let projector = Projector::new(projections()?, events, ViewStore::new(&config, views_table))
        .with_function_version(environment.optional("AWS_LAMBDA_FUNCTION_VERSION"));
    let projector = prepare(projector).await?;
    handle_invocations(metrics, async |batch: QueueBatch, deadline| {
        Ok::<_, Error>(projector.handle(batch, deadline).await)
    })
    .await
}
