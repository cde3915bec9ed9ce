//! Lambda 2. See the library.

use lambda_runtime::{Error, LambdaEvent, service_fn};
use startup::Environment;
use stream_relay::{Relay, Settings, StreamBatch, clients};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    startup::logs();
    let settings = Settings::read(&Environment::of_process())?;
    let config = startup::aws_config().await;
    let bus = clients::eventbridge(&config);
    clients::warm(&bus).await;
    let relay = Relay::new(bus, clients::sqs(&config), settings);
    let relay = &relay;
    lambda_runtime::run(service_fn(async |event: LambdaEvent<StreamBatch>| relay.invoke(event).await)).await
}
