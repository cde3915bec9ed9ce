//! Lambda 2. See the library.

use std::process::ExitCode;

use lambda_runtime::{Error, LambdaEvent, service_fn};
use startup::{Environment, Metrics};
use stream_relay::{Relay, Settings, StreamBatch, clients};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    startup::logs();
    startup::end(run().await)
}

async fn run() -> Result<(), Error> {
    let environment = Environment::of_process();
    let metrics = Metrics::collect(&environment);
    let settings = Settings::read(&environment)?;
    let config = startup::aws_config_in_lambda(&environment).await;
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
