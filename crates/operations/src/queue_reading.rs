//! Reads the dead-letter queue to its end, and reports whether that was the whole queue.
//!
//! Invariants:
//! - The reader holds no body: each is passed on once.
//! - Every received message is in the result, or was put back.
//!
//! SQS can only read a message by receiving it. A response is a sample of the visible messages, and may be empty although
//! there are some. So reading ends only when several rounds of calls have found nothing new, or when SQS counts no more
//! messages than were received.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use aws_sdk_sqs::types::Message;
use futures_util::future::join_all;
use serde::Serialize;

use crate::error::OperatorError;
use crate::messages::DeadLetterMessage;
use crate::queues::{BATCH_SIZE, QueueCounts, StackQueue};
use crate::stack::Stack;

/// Concurrent calls in a round. Each returns a maximum of ten messages of 1 MiB, so a round holds a maximum of 40 MiB.
const RECEIVERS: usize = 4;

/// The number of rounds without a new message after which reading ends, although SQS counts more messages.
const EMPTY_ROUNDS: u32 = 3;

/// How long messages stay hidden if the process ends before it puts them back. A second for each [`MESSAGES_PER_SECOND`]
/// messages in the queue is added, so that no message becomes visible again while others are read.
const READ_VISIBILITY_TIMEOUT: Duration = Duration::from_secs(60);
const MESSAGES_PER_SECOND: u64 = 20;

/// The time for retries and for the calls to SQS, added to the time that sending takes at its rate.
const SENDING_MARGIN: Duration = Duration::from_secs(600);

/// The messages that were received. They stay hidden from other readers until they are put back.
pub struct QueueReading {
    pub messages: Vec<DeadLetterMessage>,
    /// The number of messages that were received, selected or not.
    pub seen: usize,
    /// SQS's counts before the first message was received.
    pub before: QueueCounts,
    pub not_seen: NotSeen,
}

/// The approximate number of messages that were in the queue and were not received.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NotSeen {
    pub hidden: u64,
    /// The others: SQS did not return them, or the reading ended before.
    pub not_received: u64,
}

pub struct QueueReader<'a> {
    pub queue: &'a StackQueue,
    pub limit: Option<usize>,
    /// The rate at which the messages are sent after they were read. They stay hidden until then.
    pub sending_rate: Option<NonZeroU32>,
    pub stack: &'a Stack,
}

impl NotSeen {
    pub fn any(self) -> bool {
        self.hidden + self.not_received > 0
    }
}

impl<'a> QueueReader<'a> {
    pub fn new(queue: &'a StackQueue, limit: Option<usize>, stack: &'a Stack) -> Self {
        Self { queue, limit, sending_rate: None, stack }
    }

    /// Receives the messages, and calls `visit` once with each, which returns whether to receive more. If a call or a visit
    /// fails, all messages are put back.
    pub async fn read(
        &self,
        mut visit: impl FnMut(&DeadLetterMessage, &Message) -> Result<bool, OperatorError>,
    ) -> Result<QueueReading, OperatorError> {
        // By SQS's id: a message may be received twice, and only its latest receipt handle is valid.
        let mut received = BTreeMap::new();
        let ended = self.receive_all(&mut received, &mut visit).await;
        let messages: Vec<_> = received.into_values().collect();
        match ended {
            Ok((before, after)) => {
                let missing = after.total().saturating_sub(messages.len() as u64);
                let hidden = before.hidden.min(missing);
                let not_seen = NotSeen { hidden, not_received: missing - hidden };
                Ok(QueueReading { seen: messages.len(), messages, before, not_seen })
            }
            Err(error) => {
                self.queue.put_back(&messages).await;
                Err(error)
            }
        }
    }

    async fn receive_all(
        &self,
        received: &mut BTreeMap<String, DeadLetterMessage>,
        visit: &mut impl FnMut(&DeadLetterMessage, &Message) -> Result<bool, OperatorError>,
    ) -> Result<(QueueCounts, QueueCounts), OperatorError> {
        let before = self.queue.counts().await?;
        let expected = self.limit.map_or(before.total(), |limit| before.total().min(limit as u64));
        let visibility_timeout = self.visibility_timeout(expected);
        let (mut empty_rounds, mut goes_on) = (0, true);
        loop {
            let left = self.limit.map_or(usize::MAX, |limit| limit.saturating_sub(received.len()));
            if left == 0 || !goes_on || self.stack.interrupt.is_cancelled() {
                return Ok((before, self.queue.counts().await?));
            }
            let calls = (0..RECEIVERS.min(left.div_ceil(BATCH_SIZE))).map(|call| {
                let count = BATCH_SIZE.min(left - call * BATCH_SIZE);
                self.queue.receive(count, visibility_timeout)
            });
            let responses = join_all(calls).await;
            let (mut failed, mut is_over_limit, mut new) = (None, false, Vec::new());
            for response in responses {
                match response {
                    Ok(Some(messages)) => new.extend(messages),
                    Ok(None) => is_over_limit = true,
                    Err(error) => failed = Some(error),
                }
            }
            // All are recorded before anything can fail, so that all can be put back.
            new.retain(|message| match DeadLetterMessage::of(message) {
                Some(digest) => received.insert(digest.sqs_id.clone(), digest).is_none(),
                None => false,
            });
            if let Some(error) = failed {
                return Err(error);
            }
            for message in &new {
                let id = message.message_id.as_deref().unwrap_or_default();
                goes_on &= received.get(id).map_or(Ok(true), |digest| visit(digest, message))?;
            }
            (self.stack.progress)(None, format!("{} dead-letter messages", received.len()));
            empty_rounds = if new.is_empty() { empty_rounds + 1 } else { 0 };
            if empty_rounds > 0 || is_over_limit {
                let after = self.queue.counts().await?;
                if is_over_limit || empty_rounds == EMPTY_ROUNDS || after.total() <= received.len() as u64 {
                    return Ok((before, after));
                }
            }
        }
    }

    fn visibility_timeout(&self, messages: u64) -> Duration {
        let reading = READ_VISIBILITY_TIMEOUT + Duration::from_secs(messages / MESSAGES_PER_SECOND);
        let sending = |rate: NonZeroU32| SENDING_MARGIN + Duration::from_secs(messages / u64::from(rate.get()));
        reading + self.sending_rate.map_or(Duration::ZERO, sending)
    }
}

#[cfg(test)]
mod tests {
    use daybook_decider::Registry;
    use daybook_projection::Projections;
    use daybook_settings::Environment;

    use super::*;
    use crate::pacing::Interrupt;

    #[test]
    fn messages_stay_hidden_while_all_others_are_read_and_sent() {
        let config = aws_sdk_sqs::Config::builder().behavior_version_latest().build();
        let queue = StackQueue::new(aws_sdk_sqs::Client::from_conf(config), String::new());
        let projections = || Ok(Projections::new());
        let stack = Stack::new(Environment::default(), Registry::new(), projections, Interrupt::new());
        let reader = QueueReader::new(&queue, None, &stack);
        assert_eq!(reader.visibility_timeout(0), Duration::from_secs(60));
        assert_eq!(reader.visibility_timeout(1_500), Duration::from_secs(60 + 75));
        let sender = QueueReader { sending_rate: NonZeroU32::new(100), ..reader };
        assert_eq!(sender.visibility_timeout(10_000), Duration::from_secs(60 + 500 + 600 + 100));
    }
}
