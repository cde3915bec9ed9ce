//! The command handler as a Lambda function behind an API Gateway HTTP API.

use std::process::ExitCode;

use command_handler::{Api, Settings, router};
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
    lambda_http::run(router(Api::new(aggregates::registry()?, store, settings))).await
}
