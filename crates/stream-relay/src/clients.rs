//! AWS clients as the relay wants them: it does the trying again itself, entry by entry, so the SDK must not.

use std::time::Duration;

use aws_sdk_eventbridge::config::retry::RetryConfig;
use aws_sdk_eventbridge::config::timeout::TimeoutConfig;
use aws_types::SdkConfig;

/// A connection is there by then or not at all.
const CONNECT: Duration = Duration::from_secs(2);
/// One call, from the first byte to the last. EventBridge and SQS answer within tenths of a second; a call that takes
/// longer than this is lost, and sent again.
const ATTEMPT: Duration = Duration::from_secs(5);

/// What warming up may take: initialisation is not to wait for a service that does not answer.
const WARM: Duration = Duration::from_secs(1);

/// The client of the bus.
pub fn eventbridge(config: &SdkConfig) -> aws_sdk_eventbridge::Client {
    let config = aws_sdk_eventbridge::config::Builder::from(config)
        .retry_config(RetryConfig::disabled())
        .timeout_config(timeouts())
        .build();
    aws_sdk_eventbridge::Client::from_conf(config)
}

/// The client of the dead-letter queue.
pub fn sqs(config: &SdkConfig) -> aws_sdk_sqs::Client {
    let config = aws_sdk_sqs::config::Builder::from(config)
        .retry_config(RetryConfig::disabled())
        .timeout_config(timeouts())
        .build();
    aws_sdk_sqs::Client::from_conf(config)
}

/// Resolves credentials and opens a connection to the bus, so that the first batch does not pay for it: a request without
/// entries, which the bus refuses at no cost. Any answer will do, and that there is none is for the first batch to meet.
pub async fn warm(bus: &aws_sdk_eventbridge::Client) {
    let call = bus.put_events().set_entries(Some(Vec::new())).send();
    let _ = tokio::time::timeout(WARM, call).await;
}

fn timeouts() -> TimeoutConfig {
    TimeoutConfig::builder().connect_timeout(CONNECT).operation_attempt_timeout(ATTEMPT).build()
}
