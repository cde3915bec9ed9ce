//! AWS clients for the relay. They do not retry by themselves, because the relay retries entry by entry.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use aws_sdk_eventbridge::config::retry::RetryConfig;
use aws_sdk_eventbridge::config::timeout::TimeoutConfig;
use aws_sdk_sqs::operation::send_message::builders::SendMessageFluentBuilder;
use aws_types::SdkConfig;
use daybook_function_runtime::with_causes;
use tokio::time::{Instant, sleep};

use crate::bus_check::{BusCheck, NoSuchBus, check_bus};
use crate::settings::{RelaySettings, RetryPolicy};

/// Time limit for opening a connection.
const CONNECT: Duration = Duration::from_secs(2);
/// Time limit for a call, from the first byte to the last. EventBridge and SQS respond within tenths of a second; a
/// call that takes longer counts as lost and is sent again.
const ATTEMPT: Duration = Duration::from_secs(5);
/// Time limit for a check of the bus: initialization must not wait for a service that does not respond.
pub(crate) const WARM: Duration = Duration::from_secs(1);

/// The client of the bus.
pub fn eventbridge(config: &SdkConfig) -> aws_sdk_eventbridge::Client {
    aws_sdk_eventbridge::Client::new(&without_retries(config))
}

/// The client of the dead-letter queue and of the changes queue.
pub fn sqs(config: &SdkConfig) -> SqsClient {
    let config = without_retries(config);
    SqsClient(Arc::new(LazyLock::new(Box::new(move || aws_sdk_sqs::Client::new(&config)))))
}

/// A client of SQS. It is made for its first call: that takes a quarter of a relay's initialization, and most relays send
/// nothing to a queue.
#[derive(Clone, Debug)]
pub struct SqsClient(Arc<LazyLock<aws_sdk_sqs::Client, MakeSqsClient>>);

type MakeSqsClient = Box<dyn FnOnce() -> aws_sdk_sqs::Client + Send>;

impl SqsClient {
    /// A message to a queue.
    pub(crate) fn send_message(&self) -> SendMessageFluentBuilder {
        self.0.send_message()
    }
}

/// The dead-letter queue or the changes queue.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    pub(crate) client: SqsClient,
    pub(crate) url: String,
    pub(crate) retry: RetryPolicy,
}

impl Queue {
    /// Sends a message, in several attempts that all start before the cutoff. After an error, it may have arrived.
    pub(crate) async fn send(&self, body: &str, max_attempts: u32, cutoff: Option<Instant>) -> Result<(), String> {
        let mut attempts = 1;
        loop {
            let call = self.client.send_message().queue_url(&self.url).message_body(body);
            let Err(error) = call.send().await else { return Ok(()) };
            let error = with_causes(&error);
            tracing::warn!(error, attempts, "could not send to a queue");
            if attempts < max_attempts {
                sleep(self.retry.wait(attempts)).await;
            }
            if attempts == max_attempts || cutoff.is_some_and(|cutoff| Instant::now() >= cutoff) {
                return Err(error);
            }
            attempts += 1;
        }
    }
}

/// Checks that the bus of a function exists. The call also resolves credentials and opens a connection, so that the
/// first batch does not have to. Only a bus that certainly does not exist is an error: a missing permission or a bus
/// that does not respond must not stop a relay that could work.
pub async fn warm(bus: &aws_sdk_eventbridge::Client, settings: &RelaySettings) -> Result<(), NoSuchBus> {
    match check_bus(bus, &settings.event_bus_name, WARM).await {
        BusCheck::Exists => {}
        BusCheck::Missing(missing) => return Err(missing),
        BusCheck::NotAllowed(reason) | BusCheck::Failed(reason) => {
            tracing::warn!(reason, "the event bus could not be checked");
        }
    }
    Ok(())
}

fn without_retries(config: &SdkConfig) -> SdkConfig {
    let timeouts = TimeoutConfig::builder().connect_timeout(CONNECT).operation_attempt_timeout(ATTEMPT).build();
    config.to_builder().retry_config(RetryConfig::disabled()).timeout_config(timeouts).build()
}
