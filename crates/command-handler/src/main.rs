//! The command handler as a Lambda function behind an API Gateway HTTP API.

use std::process::ExitCode;

use command_handler::{Api, Settings, gateway, router};
use event_store::EventStore;
use startup::Environment;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    startup::logs();
    startup::end(run().await)
}

async fn run() -> Result<(), lambda_http::Error> {
    let environment = Environment::of_process();
    let settings = Settings::read(&environment)?;
    let config = startup::aws_config_in_lambda(&environment).await;
    let store = EventStore::new(&config, event_store::Settings::read(&environment)?);
    store.warm().await;
    let api = Api::new(aggregates::registry()?, store, settings);
    lambda_http::lambda_runtime::run(gateway::function(router(api))).await
}
