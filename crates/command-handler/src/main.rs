//! The command handler as a Lambda function behind an API Gateway HTTP API.

use std::process::ExitCode;

use daybook_command_handler::{Api, ApiSettings, gateway, router, store_settings, views_table};
use daybook_event_store::EventStore;
use daybook_function_runtime::{Metrics, export_spans};
use daybook_settings::Environment;
use daybook_view_store::ViewStore;
use lambda_http::tower::ServiceExt;

// An environment on managed instances has one vCPU too, which one thread uses: its concurrent invocations wait for DynamoDB.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    daybook_function_runtime::run(run()).await
}

async fn run() -> Result<(), lambda_http::Error> {
    let environment = Environment::of_process();
    let metrics = Metrics::collect(&environment);
    let settings = ApiSettings::read(&environment)?;
    let config = daybook_function_runtime::aws_config_in_lambda(&environment).await?;
    let store = EventStore::new(&config, store_settings(&environment)?);
    daybook_function_runtime::log_failed_warm_up(store.warm().await);
    let mut api = Api::new(aggregates::registry()?, store, settings);
    if let Some(table_name) = views_table(&environment) {
        api = api.with_views(projections::projections()?, ViewStore::new(&config, table_name));
    }
    let function = gateway::function(router(api)).then(async move |response| {
        metrics.write();
        export_spans().await;
        response
    });
    // Elsewhere than on managed instances, Lambda sets no concurrency, and there is one invocation at a time.
    lambda_http::lambda_runtime::run_concurrent(function).await
}
