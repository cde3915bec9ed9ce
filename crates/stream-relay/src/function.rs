//! The relay as a Lambda function behind the table's stream.

use std::process::ExitCode;

use daybook_function_runtime::{Error, Metrics, aws_config_in_lambda, handle_invocations};
use daybook_settings::Environment;
use daybook_stream_batch::StreamBatch;

use crate::clients;
use crate::relay::Relay;
use crate::settings::{RelaySettings, changes_queue, processes_queue, reactions_queue};

/// Runs the relay until Lambda ends its process: the `main` of the function. It exits with an error in the log if a setting
/// is invalid or the bus does not exist.
#[tokio::main(flavor = "current_thread")]
pub async fn run() -> ExitCode {
    daybook_function_runtime::run(serve()).await
}

async fn serve() -> Result<(), Error> {
    let environment = Environment::of_process();
    let metrics = Metrics::collect(&environment);
    let settings = RelaySettings::read(&environment)?;
    let config = aws_config_in_lambda(&environment).await?;
    let bus = clients::eventbridge(&config);
    let is_checked = clients::warm(&bus, &settings).await?;
    let mut relay = Relay::new(bus, clients::sqs(&config), settings)
        .with_function_version(environment.optional("AWS_LAMBDA_FUNCTION_VERSION"));
    if !is_checked {
        relay = relay.with_unchecked_bus();
    }
    for queue in [changes_queue(&environment), processes_queue(&environment)].into_iter().flatten() {
        relay = relay.with_changes_queue(clients::sqs(&config), queue);
    }
    if let Some(queue) = reactions_queue(&environment) {
        relay = relay.with_reactions_queue(clients::sqs(&config), queue);
    }
    handle_invocations(metrics, async |batch: StreamBatch, deadline| relay.handle(batch, deadline).await).await
}
