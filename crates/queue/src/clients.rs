//! Clients that do not retry by themselves, because their users retry entry by entry or message by message.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use aws_sdk_sqs::config::retry::RetryConfig;
use aws_sdk_sqs::config::timeout::TimeoutConfig;
use aws_types::SdkConfig;

const CONNECT: Duration = Duration::from_secs(2);
/// Time limit for a call, from the first byte to the last. EventBridge and SQS respond within tenths of a second; a
/// call that takes longer counts as lost and is sent again.
const ATTEMPT: Duration = Duration::from_secs(5);

/// The configuration of a client of EventBridge or SQS.
pub fn without_retries(config: &SdkConfig) -> SdkConfig {
    let timeouts = TimeoutConfig::builder().connect_timeout(CONNECT).operation_attempt_timeout(ATTEMPT).build();
    config.to_builder().retry_config(RetryConfig::disabled()).timeout_config(timeouts).build()
}

/// A client of SQS. It is made for its first call: that takes a quarter of a relay's initialization, and most relays send
/// nothing to a queue.
#[derive(Clone, Debug)]
pub struct SqsClient(Arc<LazyLock<aws_sdk_sqs::Client, MakeSqsClient>>);

type MakeSqsClient = Box<dyn FnOnce() -> aws_sdk_sqs::Client + Send>;

impl SqsClient {
    pub fn new(config: &SdkConfig) -> Self {
        let config = without_retries(config);
        Self(Arc::new(LazyLock::new(Box::new(move || aws_sdk_sqs::Client::new(&config)))))
    }

    pub(crate) fn get(&self) -> &aws_sdk_sqs::Client {
        &self.0
    }
}
