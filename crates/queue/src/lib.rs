//! Sends messages to the SQS queues of the suite: one queue, its client, and the pauses between the attempts of a call.
//!
//! Invariant: a message of a queue that was not accepted is never taken for an accepted one. The other way round is possible.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use aws_sdk_sqs::config::retry::RetryConfig;
use aws_sdk_sqs::config::timeout::TimeoutConfig;
use aws_sdk_sqs::types::QueueAttributeName;
use aws_types::SdkConfig;
use daybook_function_runtime::with_causes;
use tokio::time::{Instant, sleep};

#[derive(Clone, Debug)]
pub struct Queue {
    pub client: SqsClient,
    pub url: String,
    pub waits: Waits,
}

impl Queue {
    pub const MAX_DELAY: Duration = Duration::from_mins(15);

    /// Sends a message, in several attempts that all start before the cutoff. After an error, it may have arrived.
    pub async fn send(&self, body: &str, max_attempts: u32, cutoff: Option<Instant>) -> Result<(), String> {
        self.send_delayed(body, Duration::ZERO, max_attempts, cutoff).await
    }

    /// Sends a message that becomes visible after a delay, which is rounded up to seconds, and at most
    /// [`MAX_DELAY`](Self::MAX_DELAY).
    pub async fn send_delayed(
        &self,
        body: &str,
        delay: Duration,
        max_attempts: u32,
        cutoff: Option<Instant>,
    ) -> Result<(), String> {
        let seconds = delay.min(Self::MAX_DELAY).as_millis().div_ceil(1_000);
        let seconds = i32::try_from(seconds).ok().filter(|seconds| *seconds > 0);
        let mut attempts = 1;
        loop {
            let call = self.client.get().send_message().queue_url(&self.url).message_body(body);
            let Err(error) = call.set_delay_seconds(seconds).send().await else { return Ok(()) };
            let error = with_causes(&error);
            tracing::warn!(error, attempts, "could not send to a queue");
            if attempts < max_attempts {
                sleep(self.waits.after(attempts)).await;
            }
            if attempts == max_attempts || cutoff.is_some_and(|cutoff| Instant::now() >= cutoff) {
                return Err(error);
            }
            attempts += 1;
        }
    }

    /// The number of messages that are visible or in flight, without those whose delay has not passed. It is approximate.
    pub async fn waiting(&self) -> Result<u64, String> {
        let names = [
            QueueAttributeName::ApproximateNumberOfMessages,
            QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
        ];
        let call = self.client.get().get_queue_attributes().queue_url(&self.url);
        let call = call.set_attribute_names(Some(names.to_vec()));
        let attributes = call.send().await.map_err(|error| with_causes(&error))?.attributes.unwrap_or_default();
        let counts = names.iter().map(|name| {
            let count = attributes.get(name).and_then(|count| count.parse::<u64>().ok());
            count.ok_or_else(|| format!("the queue has no attribute {name}"))
        });
        counts.sum()
    }
}

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

#[derive(Clone, Copy, Debug)]
pub struct Waits {
    /// The maximum of the first wait; the maximum doubles with each later wait.
    pub first: Duration,
    pub longest: Duration,
}

impl Waits {
    /// The wait after this many attempts, with full jitter: anything from zero to the maximum.
    pub fn after(&self, attempts: u32) -> Duration {
        self.limit(attempts).mul_f64(fastrand::f64())
    }

    /// The maximum of the wait after this many attempts.
    pub fn limit(&self, attempts: u32) -> Duration {
        let doublings = attempts.saturating_sub(1);
        self.first.saturating_mul(2_u32.saturating_pow(doublings)).min(self.longest)
    }
}

impl Default for Waits {
    fn default() -> Self {
        Self { first: Duration::from_millis(100), longest: Duration::from_secs(5) }
    }
}

#[cfg(test)]
mod tests {
    use daybook_function_runtime::aws_config_at;
    use daybook_local_aws::messaging::{Bus, Server};
    use serde_json::json;

    use super::*;

    async fn start() -> (Bus, Server, Queue) {
        let bus = Bus::with("main", "work");
        let server = Server::start(bus.router()).await.unwrap();
        let waits = Waits { first: Duration::from_millis(1), ..Waits::default() };
        let client = SqsClient::new(&aws_config_at(server.url()));
        (bus, server, Queue { client, url: "http://localhost/1/work".to_owned(), waits })
    }

    #[tokio::test]
    async fn no_attempt_starts_at_the_cutoff_or_later() {
        let (bus, _server, queue) = start().await;
        for (cutoff, arrived) in [(Some(Instant::now()), 0), (None, 1)] {
            bus.set_faults(serde_json::from_value(json!({"sendMessage": [{"http": 503}]})).unwrap());
            let result = queue.send("{}", 3, cutoff).await;
            assert_eq!((result.is_ok(), bus.queued().len()), (arrived == 1, arrived), "{cutoff:?}");
        }
    }

    #[tokio::test]
    async fn delay_is_rounded_up_to_seconds_and_within_the_limit_of_the_service() {
        let (bus, _server, queue) = start().await;
        for (milliseconds, visible) in [(0, 1), (1, 1), (10_000_000, 1)] {
            queue.send_delayed("{}", Duration::from_millis(milliseconds), 1, None).await.unwrap();
            assert_eq!(bus.message_counts("work").0, visible, "{milliseconds} ms");
        }
        assert_eq!(queue.waiting().await, Ok(1), "without those with a delay");
        bus.receive("work", 1, Duration::from_mins(1)).await.unwrap();
        assert_eq!((bus.message_counts("work"), queue.waiting().await), ((0, 3), Ok(1)));
    }

    #[tokio::test]
    async fn unknown_number_of_waiting_messages_is_an_error() {
        let (_bus, _server, queue) = start().await;
        let other = Queue { url: "http://localhost/1/other".to_owned(), ..queue };
        assert!(other.waiting().await.unwrap_err().contains("does not exist"));
    }

    #[test]
    fn waits_double_up_to_a_limit() {
        let waits = Waits::default();
        let limits: Vec<_> = (1..=8).map(|attempts| waits.limit(attempts).as_millis()).collect();
        assert_eq!(limits, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(waits.limit(u32::MAX), waits.longest);
        assert!((0..1000).all(|_| waits.after(3) <= waits.limit(3)));
    }
}
