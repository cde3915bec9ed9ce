//! Distinguishes failures of single messages from failures of the bus. Only a failure of a single message may send the
//! message to the dead-letter queue; a failure of the bus must not drain the stream into that queue.
//!
//! The rule:
//! 1. A rejected message is held until there is evidence whether the message or the bus is the cause. If the bus has
//!    accepted another message in this invocation, the message itself is the cause: it goes to the dead-letter queue.
//! 2. If the bus has accepted nothing, and no request is in flight or ready that could change this, fewer than
//!    [`SEVERAL`] messages with the same code count as single messages and go to the dead-letter queue. So a batch that
//!    contains only a poison message does not wait. Codes that are certainly about the message ([`ABOUT_THE_MESSAGE`])
//!    are counted within the invocation. Other codes can also mean a wrong setting, with which the bus rejects every
//!    message, and one invocation may see too few messages: a mapping splits failing batches down to single records,
//!    and a stack without load has batches of one. For these codes, the count therefore includes the messages that
//!    went to the dead-letter queue without evidence in earlier invocations of this process, for
//!    `MAX_MESSAGE_AGE_MINUTES` or until the bus accepts a message. So with a wrong setting, a process sends a maximum
//!    of two messages with the same code to the dead-letter queue in that time, and a shard whose first messages are
//!    all rejected is not blocked forever.
//! 3. With [`SEVERAL`] or more such messages, the breaker is open: all rejected messages stay unsettled. Requests start
//!    one after the other, because the bus may accept a message further back in the batch, which closes the breaker.
//! 4. A transient failure is retried for the whole invocation. It counts as a rejection if the message is older than
//!    `MAX_MESSAGE_AGE_MINUTES`, failed [`MIN_ATTEMPTS`] times in this invocation, few others have the same code, and
//!    the bus accepts others: in this invocation, or in an earlier one of this process, because the mapping may
//!    meanwhile deliver the message alone. In an outage the bus accepts nothing, so no message goes to the dead-letter
//!    queue.
//! 5. An error of the deployment stops the invocation at once, and sends nothing to the dead-letter queue.
//!
//! The evidence of earlier invocations is lost when Lambda replaces the process. Then a message that is delivered alone
//! is retried until the mapping discards it, and the alarms on late messages and retried records stay on.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// From this number of rejected messages with the same code on, the bus counts as the cause.
const SEVERAL: usize = 3;
/// The number of attempts in an invocation before a transient failure can count as a rejection.
const MIN_ATTEMPTS: u32 = 5;
/// The codes that are about the message and cannot be about a setting.
const ABOUT_THE_MESSAGE: [&str; 2] = ["MalformedDetail", "OversizedEntry"];
/// Maximum messages that are remembered as failing while others succeeded.
const MAX_REMEMBERED: usize = 10_000;

/// The evidence of earlier invocations of this process.
#[derive(Clone, Debug, Default)]
pub(crate) struct BusMemory(Arc<Mutex<Memory>>);

#[derive(Debug, Default)]
struct Memory {
    /// The ids of the messages that went to the dead-letter queue without evidence since the bus last accepted one, by
    /// code, with the time of that decision. Without the codes in [`ABOUT_THE_MESSAGE`].
    presumed: HashMap<String, HashMap<String, Instant>>,
    /// The ids of messages that failed while the bus accepted others.
    failed_alone: HashSet<String>,
}

/// The evidence of one invocation.
#[derive(Debug)]
pub(crate) struct Breaker {
    memory: BusMemory,
    max_message_age: Duration,
    accepted: usize,
    /// The messages that failed, by code.
    failed: HashMap<String, BTreeSet<usize>>,
    /// Those of them that were rejected, with their ids.
    rejected: HashMap<String, BTreeMap<usize, String>>,
}

impl Breaker {
    pub(crate) fn new(memory: BusMemory, max_message_age: Duration) -> Self {
        Self { memory, max_message_age, accepted: 0, failed: HashMap::new(), rejected: HashMap::new() }
    }

    /// Records that the bus accepted a message.
    pub(crate) fn accepted(&mut self, id: &str) {
        self.accepted += 1;
        let mut memory = self.memory();
        memory.presumed.clear();
        memory.failed_alone.remove(id);
    }

    /// Records a failure of a message, of any kind.
    pub(crate) fn failed(&mut self, index: usize, code: &str) {
        self.failed.entry(code.to_owned()).or_default().insert(index);
    }

    /// Whether a transient failure of this message counts as a rejection.
    pub(crate) fn is_given_up(&self, id: &str, code: &str, attempts: u32, age: Option<Duration>) -> bool {
        let others_succeed =
            if self.accepted > 0 { self.are_few(code) } else { self.memory().failed_alone.contains(id) };
        attempts >= MIN_ATTEMPTS && age.is_some_and(|age| age >= self.max_message_age) && others_succeed
    }

    /// Records that a message was rejected.
    pub(crate) fn rejected(&mut self, index: usize, id: &str, code: &str, now: Instant) {
        self.rejected.entry(code.to_owned()).or_default().insert(index, id.to_owned());
        let max_age = self.max_message_age;
        if let Some(presumed) = self.memory().presumed.get_mut(code) {
            presumed.retain(|_, since| now.duration_since(*since) < max_age);
        }
    }

    /// Records that the rejected messages count as single messages although the bus has accepted nothing.
    pub(crate) fn presume_single(&self, now: Instant) {
        let mut memory = self.memory();
        let is_unclear = |code: &str| !ABOUT_THE_MESSAGE.contains(&code);
        for (code, rejected) in self.rejected.iter().filter(|(code, _)| is_unclear(code)) {
            let presumed = memory.presumed.entry(code.clone()).or_default();
            for id in rejected.values() {
                presumed.entry(id.clone()).or_insert(now);
            }
        }
    }

    /// Whether the bus has accepted a message in this invocation.
    pub(crate) fn has_accepted(&self) -> bool {
        self.accepted > 0
    }

    /// Whether the bus, and no single message, is the cause of the rejections.
    pub(crate) fn is_open(&self) -> bool {
        self.rejected_by_the_bus().is_some()
    }

    /// A message of this invocation that was rejected together with several others, so that the breaker is open.
    pub(crate) fn rejected_by_the_bus(&self) -> Option<usize> {
        let mut rejected = self.rejected.iter().filter(|_| self.accepted == 0);
        let (_, here) = rejected.find(|(code, here)| self.count(code, here) >= SEVERAL)?;
        here.keys().next().copied()
    }

    /// Remembers a message that is unsettled after a transient failure, if the bus accepted others.
    pub(crate) fn remember_unsettled(&self, id: &str, code: &str) {
        let mut memory = self.memory();
        if self.accepted > 0 && self.are_few(code) {
            if memory.failed_alone.len() >= MAX_REMEMBERED {
                memory.failed_alone.clear();
            }
            memory.failed_alone.insert(id.to_owned());
        }
    }

    fn count(&self, code: &str, rejected: &BTreeMap<usize, String>) -> usize {
        let memory = self.memory();
        let Some(presumed) = memory.presumed.get(code) else { return rejected.len() };
        presumed.len() + rejected.values().filter(|id| !presumed.contains_key(*id)).count()
    }

    /// Whether few messages of this invocation failed with a code, compared with those that the bus accepted.
    /// Throttling and short disturbances make many messages fail.
    fn are_few(&self, code: &str) -> bool {
        let failed = self.failed.get(code).map_or(0, BTreeSet::len);
        failed < SEVERAL || failed * 10 <= self.accepted
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGE: Duration = Duration::from_secs(900);
    const OLD: Option<Duration> = Some(AGE);

    fn breaker() -> Breaker {
        Breaker::new(BusMemory::default(), AGE)
    }

    fn next(breaker: &Breaker) -> Breaker {
        Breaker::new(breaker.memory.clone(), AGE)
    }

    #[test]
    fn breaker_opens_when_several_messages_are_rejected_and_none_is_accepted() {
        let mut breaker = breaker();
        for (index, open) in [(0, false), (1, false), (1, false), (2, true)] {
            breaker.rejected(index, &index.to_string(), "InvalidArgument", Instant::now());
            assert_eq!(breaker.is_open(), open, "{index}");
        }
        breaker.accepted("3");
        assert!(!breaker.is_open());
    }

    #[test]
    fn rejections_with_different_codes_do_not_open_the_breaker() {
        let mut breaker = breaker();
        for (index, code) in ["InvalidArgument", "SomethingNew", "MalformedDetail", "OversizedEntry"].iter().enumerate()
        {
            breaker.rejected(index, &index.to_string(), code, Instant::now());
        }
        assert!(!breaker.is_open());
    }

    /// Whether the breaker is open after this message was rejected alone in an invocation. If not, the message goes to
    /// the dead-letter queue.
    fn is_open_after(memory: &Breaker, id: &str, code: &str, now: Instant) -> bool {
        let mut breaker = next(memory);
        breaker.rejected(0, id, code, now);
        if !breaker.is_open() {
            breaker.presume_single(now);
        }
        breaker.is_open()
    }

    #[test]
    fn dead_lettered_messages_of_earlier_invocations_count_for_codes_that_may_mean_a_setting() {
        for (code, open) in [("InvalidArgument", true), ("MalformedDetail", false)] {
            let (now, breaker) = (Instant::now(), breaker());
            assert!(!is_open_after(&breaker, "a", code, now));
            assert!(!is_open_after(&breaker, "b", code, now));
            assert_eq!(is_open_after(&breaker, "c", code, now), open, "{code}");
            assert!(!is_open_after(&breaker, "b", code, now), "a message counts once");
            assert!(!is_open_after(&breaker, "c", code, now + AGE), "{code}");
        }
    }

    #[test]
    fn first_messages_of_several_shards_do_not_keep_the_breaker_open() {
        let (now, breaker) = (Instant::now(), breaker());
        let mut waiting = vec!["a", "b", "c", "d", "e", "f", "g"];
        for seconds in 0..4 * AGE.as_secs() {
            waiting.retain(|id| is_open_after(&breaker, id, "InvalidArgument", now + Duration::from_secs(seconds)));
            let periods = usize::try_from(seconds / AGE.as_secs()).unwrap() + 1;
            assert_eq!(waiting.len(), 7_usize.saturating_sub(2 * periods), "after {seconds} s");
        }
    }

    #[test]
    fn transient_failure_of_an_old_message_counts_as_a_rejection_only_while_others_succeed() {
        let mut breaker = breaker();
        breaker.failed(0, "InternalFailure");
        assert!(!breaker.is_given_up("a", "InternalFailure", 5, OLD), "an outage");
        breaker.accepted("b");
        assert!(breaker.is_given_up("a", "InternalFailure", 5, OLD));
        assert!(!breaker.is_given_up("a", "InternalFailure", 4, OLD));
        assert!(!breaker.is_given_up("a", "InternalFailure", 5, Some(AGE - Duration::from_secs(1))));
        assert!(!breaker.is_given_up("a", "InternalFailure", 5, None));
        for index in 1..SEVERAL {
            breaker.failed(index, "InternalFailure");
        }
        assert!(!breaker.is_given_up("a", "InternalFailure", 5, OLD), "the failures hit many");
        (0..30).for_each(|_| breaker.accepted("c"));
        assert!(breaker.is_given_up("a", "InternalFailure", 5, OLD), "the failures hit few of many");
    }

    #[test]
    fn message_that_failed_while_others_succeeded_can_later_be_rejected_alone() {
        let mut breaker = breaker();
        breaker.failed(0, "InternalFailure");
        breaker.remember_unsettled("a", "InternalFailure");
        assert!(!next(&breaker).is_given_up("a", "InternalFailure", 5, OLD), "the bus accepted nothing");
        breaker.accepted("b");
        breaker.remember_unsettled("a", "InternalFailure");
        let mut alone = next(&breaker);
        assert!(alone.is_given_up("a", "InternalFailure", 5, OLD));
        assert!(!alone.is_given_up("c", "InternalFailure", 5, OLD));
        alone.accepted("a");
        assert!(!next(&alone).is_given_up("a", "InternalFailure", 5, OLD));
    }
}
