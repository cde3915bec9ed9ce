//! Lambda 2. See the library.

use std::process::ExitCode;

use daybook_function_runtime::Metrics;
use daybook_settings::Environment;
use daybook_stream_relay::{Relay, RelaySettings, StreamBatch, clients};
use lambda_runtime::{Error, LambdaEvent, service_fn};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    daybook_function_runtime::logs();
    daybook_function_runtime::end(run().await)
}

async fn run() -> Result<(), Error> {
    let environment = Environment::of_process();
    let metrics = Metrics::collect(&environment);
    let settings = RelaySettings::read(&environment)?;
    let config = daybook_function_runtime::aws_config_in_lambda(&environment).await;
    let bus = clients::eventbridge(&config);
    clients::warm(&bus).await;
    let relay = Relay::new(bus, clients::sqs(&config), settings);
    let relay = &relay;
    let invoke = async |event: LambdaEvent<StreamBatch>| {
        let answer = relay.invoke(event).await;
        metrics.write();
        answer
    };
    lambda_runtime::run(service_fn(invoke)).await
}
