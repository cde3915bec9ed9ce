//! The reactor as a Lambda function behind its queue, which is also invoked each minute.

use std::process::ExitCode;

use daybook_decider::{RegistrationError, Registry};
use daybook_event_store::{EventStore, StoreSettings};
use daybook_function_runtime::{Error, Metrics, aws_config_in_lambda, handle_invocations, log_failed_warm_up};
use daybook_queue::{Queue, SqsClient, Waits};
use daybook_settings::{Environment, SettingError};

use crate::reactor::Reactor;

type Aggregates = fn() -> Result<Registry, RegistrationError>;

/// The queue of the reactor: `REACTIONS_QUEUE_URL`.
pub fn reactions_queue(environment: &Environment) -> Result<String, SettingError> {
    environment.required("REACTIONS_QUEUE_URL")
}

/// Runs the reactor until Lambda ends its process: the `main` of the function. It exits with an error in the log if the
/// registration fails or a setting is invalid.
#[tokio::main(flavor = "current_thread")]
pub async fn run(aggregates: Aggregates) -> ExitCode {
    daybook_function_runtime::run(serve(aggregates)).await
}

async fn serve(aggregates: Aggregates) -> Result<(), Error> {
    let environment = Environment::of_process();
    let metrics = Metrics::collect(&environment);
    let settings = StoreSettings::read(&environment)?;
    let url = reactions_queue(&environment)?;
    let config = aws_config_in_lambda(&environment).await?;
    let store = EventStore::new(&config, settings).with_keys(&environment, &config)?;
    log_failed_warm_up(store.warm().await);
    let queue = Queue { client: SqsClient::new(&config), url, waits: Waits::default() };
    let reactor = Reactor::new(aggregates()?, store, queue)
        .with_function_version(environment.optional("AWS_LAMBDA_FUNCTION_VERSION"));
    handle_invocations(metrics, async |event, deadline| Ok::<_, Error>(reactor.handle(event, deadline).await)).await
}
