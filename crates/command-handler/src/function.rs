//! The command handler as a Lambda function behind an API Gateway HTTP API.

use std::process::ExitCode;

use daybook_decider::{RegistrationError, Registry};
use daybook_event_store::{EventStore, StoreSettings};
use daybook_function_runtime::{Metrics, export_spans};
use daybook_projection::{ProjectionRegistrationError, Projections};
use daybook_settings::Environment;
use daybook_view_store::ViewStore;
use lambda_http::tower::ServiceExt;

use crate::api::Api;
use crate::gateway;
use crate::router::router;
use crate::settings::{ApiSettings, views_table};

type Aggregates = fn() -> Result<Registry, RegistrationError>;

type RegisteredProjections = fn() -> Result<Projections, ProjectionRegistrationError>;

/// Runs the command handler until Lambda ends its process: the `main` of the function. It exits with an error in the log if
/// a registration fails or a setting is invalid.
// An environment on managed instances has one vCPU too, which one thread uses: its concurrent invocations wait for DynamoDB.
#[tokio::main(flavor = "current_thread")]
pub async fn run(aggregates: Aggregates, projections: RegisteredProjections) -> ExitCode {
    daybook_function_runtime::run(serve(aggregates, projections)).await
}

async fn serve(aggregates: Aggregates, projections: RegisteredProjections) -> Result<(), lambda_http::Error> {
    let environment = Environment::of_process();
    let metrics = Metrics::collect(&environment);
    let settings = ApiSettings::read(&environment)?;
    let config = daybook_function_runtime::aws_config_in_lambda(&environment).await?;
    let store = EventStore::new(&config, StoreSettings::read(&environment)?).with_keys(&environment, &config)?;
    daybook_function_runtime::log_failed_warm_up(store.warm().await);
    let mut api = Api::new(aggregates()?, store, settings);
    if let Some(table_name) = views_table(&environment) {
        api = api.with_views(projections()?, ViewStore::new(&config, table_name));
    }
    let function = gateway::function(router(api)).then(async move |response| {
        metrics.write();
        export_spans().await;
        response
    });
    // Elsewhere than on managed instances, Lambda sets no concurrency, and there is one invocation at a time.
    lambda_http::lambda_runtime::run_concurrent(function).await
}
