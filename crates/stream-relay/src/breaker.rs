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
//!    went to the dead-letter queue without evidence in earlier invocations of this process, for 15 minutes or until
//!    the bus accepts a message. So with a wrong setting, a process sends a maximum of two messages with the same code
//!    to the dead-letter queue in that time, and a shard whose first messages are all rejected is not blocked forever.
//! 3. With [`SEVERAL`] or more such messages, the breaker is open: all rejected messages stay unsettled. Requests start
//!    one after the other, because the bus may accept a message further back in the batch, which closes the breaker.
//! 4. A transient failure is retried. The message itself is the cause if few others fail with the same code while the bus
//!    accepts others after its first failure, in any invocation of this process. After 20 seconds and [`MIN_FAILURES`]
//!    failures it goes to the dead-letter queue, so that it holds the messages behind it for less than a minute. If the
//!    bus only accepted others just before, an outage may have begun: then the time is 15 minutes. In an outage the bus
//!    accepts nothing, so no message goes to the dead-letter queue. Throttling is never about a message.
//! 5. An error of the deployment stops the invocation at once, and sends nothing to the dead-letter queue.
//!
//! The evidence of earlier invocations is lost when Lambda replaces the process. Without evidence, a message that is alone
//! in its batches is retried until the mapping discards it, and the alarms on late and retried records stay on.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tokio::time::Instant;

use crate::memory::Memory;
use crate::message::Attempts;
use crate::settings::RetryPolicy;

/// From this number of rejected messages with the same code on, the bus counts as the cause.
const SEVERAL: usize = 3;
/// The number of transient failures before a message can be given up.
const MIN_FAILURES: u32 = 5;
/// The codes that are about the message and cannot be about a setting.
const ABOUT_THE_MESSAGE: [&str; 2] = ["MalformedDetail", "OversizedEntry"];

/// The evidence of one invocation.
#[derive(Debug)]
pub(crate) struct Breaker {
    memory: Memory,
    retry: RetryPolicy,
    accepted: usize,
    /// The messages that failed transiently, by code, without those that are known to fail alone.
    failed: HashMap<String, BTreeSet<usize>>,
    /// The code and the id of each message that was rejected.
    rejected: BTreeMap<usize, (String, String)>,
}

impl Breaker {
    pub(crate) fn new(memory: Memory, retry: RetryPolicy) -> Self {
        Self { memory, retry, accepted: 0, failed: HashMap::new(), rejected: BTreeMap::new() }
    }

    pub(crate) fn accepted(&mut self, now: Instant) {
        self.accepted += 1;
        let mut memory = self.memory.lock();
        memory.presumed.clear();
        memory.last_accepted = Some(now);
    }

    /// Records a transient failure of a message. Returns whether it goes to the dead-letter queue.
    pub(crate) fn is_given_up(&mut self, index: usize, attempts: &mut Attempts, code: &str, now: Instant) -> bool {
        attempts.transient_failures += 1;
        let first_failure = *attempts.first_failure.get_or_insert(now);
        let failed = self.failed.entry(code.to_owned()).or_default();
        if attempts.alone_since.is_none() && (attempts.unclear_since.is_none() || self.accepted == 0) {
            failed.insert(index);
        }
        // Short disturbances make many messages fail. What was known about single ones is no evidence then.
        if failed.len() >= SEVERAL && failed.len() * 10 > self.accepted {
            (attempts.alone_since, attempts.unclear_since) = (None, None);
            return false;
        }
        if self.memory.lock().last_accepted >= Some(first_failure) {
            attempts.alone_since.get_or_insert(now);
        }
        if self.accepted > 0 {
            attempts.unclear_since.get_or_insert(now);
        }
        let lasts = |since: Option<Instant>, time| since.is_some_and(|since| now.duration_since(since) >= time);
        attempts.transient_failures >= MIN_FAILURES
            && (lasts(attempts.alone_since, self.retry.alone) || lasts(attempts.unclear_since, self.retry.unclear))
    }

    pub(crate) fn rejected(&mut self, index: usize, id: &str, code: &str, now: Instant) {
        self.rejected.insert(index, (code.to_owned(), id.to_owned()));
        self.memory.lock().presumed.retain(|_, since| now.duration_since(*since) < self.retry.unclear);
    }

    /// Records that the rejected messages count as single messages, if the bus has accepted nothing.
    pub(crate) fn presume_single(&self, now: Instant) {
        let is_unclear = |code: &str| self.accepted == 0 && !ABOUT_THE_MESSAGE.contains(&code);
        let mut memory = self.memory.lock();
        for rejected in self.rejected.values().filter(|(code, _)| is_unclear(code)) {
            memory.presumed.entry(rejected.clone()).or_insert(now);
        }
    }

    pub(crate) fn has_accepted(&self) -> bool {
        self.accepted > 0
    }

    /// Whether the bus, and no single message, is the cause of the rejections.
    pub(crate) fn is_open(&self) -> bool {
        self.rejected_by_the_bus().is_some()
    }

    /// A message of this invocation that was rejected together with several others, so that the breaker is open.
    pub(crate) fn rejected_by_the_bus(&self) -> Option<usize> {
        if self.accepted > 0 {
            return None;
        }
        let memory = self.memory.lock();
        let mut ids: HashMap<&str, BTreeSet<&str>> = HashMap::new();
        for (code, id) in memory.presumed.keys().chain(self.rejected.values()) {
            ids.entry(code).or_default().insert(id);
        }
        let are_several = |code: &str| ids.get(code).is_some_and(|ids| ids.len() >= SEVERAL);
        self.rejected.iter().find(|(_, (code, _))| are_several(code)).map(|(&index, _)| index)
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::time::Duration;

    use super::*;

    const AGE: Duration = Duration::from_secs(900);

    fn breaker() -> Breaker {
        Breaker::new(Memory::default(), RetryPolicy::default())
    }

    fn next(breaker: &Breaker) -> Breaker {
        Breaker::new(breaker.memory.clone(), breaker.retry)
    }

    #[test]
    fn breaker_opens_when_several_messages_are_rejected_and_none_is_accepted() {
        let mut breaker = breaker();
        for (index, open) in [(0, false), (1, false), (1, false), (2, true)] {
            breaker.rejected(index, &index.to_string(), "InvalidArgument", Instant::now());
            assert_eq!(breaker.is_open(), open, "{index}");
        }
        breaker.accepted(Instant::now());
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

    fn failing_from(time: Instant) -> Attempts {
        Attempts { first_failure: Some(time), ..Attempts::default() }
    }

    /// The second in which a message is given up that fails each second.
    fn given_up(breaker: &mut Breaker, index: usize, message: &mut Attempts, mut seconds: Range<u64>) -> Option<u64> {
        let from = message.first_failure.unwrap();
        seconds.find(|&s| breaker.is_given_up(index, message, "InternalFailure", from + Duration::from_secs(s)))
    }

    #[test]
    fn message_that_fails_while_others_succeed_is_given_up_within_a_minute() {
        let (now, mut breaker) = (Instant::now(), breaker());
        let mut message = failing_from(now);
        assert_eq!(given_up(&mut breaker, 0, &mut message, 0..3_600), None, "an outage");
        breaker.accepted(now + Duration::from_secs(3_600));
        assert_eq!(given_up(&mut breaker, 0, &mut message, 3_600..9_999), Some(3_620), "the outage does not count");
        let mut rarely_sent = failing_from(now + Duration::from_secs(3_600));
        assert_eq!((0..4).find_map(|n| given_up(&mut breaker, 1, &mut rarely_sent, 99 * n..99 * n + 1)), None);
    }

    #[test]
    fn message_that_fails_after_others_succeeded_is_given_up_later() {
        let (now, mut breaker) = (Instant::now(), breaker());
        breaker.accepted(now);
        let mut message = failing_from(now + Duration::from_secs(1));
        assert_eq!(given_up(&mut breaker, 0, &mut message, 0..9_999), Some(900), "an outage may have begun");
    }

    #[test]
    fn one_of_many_messages_that_fail_is_not_given_up() {
        let (now, mut breaker) = (Instant::now(), breaker());
        let mut messages = vec![failing_from(now); SEVERAL];
        breaker.accepted(now);
        let mut fail = |index: usize, seconds| given_up(&mut breaker, index, &mut messages[index], seconds);
        assert_eq!([fail(0, 0..1), fail(1, 0..1), fail(2, 0..3_600)], [None; SEVERAL]);
        (0..30).for_each(|_| breaker.accepted(now));
        assert_eq!(given_up(&mut breaker, 2, &mut messages[2], 3_600..9_999), Some(3_620), "few of many");
    }

    #[test]
    fn messages_that_fail_alone_are_given_up_by_a_later_invocation() {
        // The bus has accepted others after their first failure, or only just before.
        for (first_failure, time) in [(0, 20), (1, 900)] {
            let (now, mut breaker) = (Instant::now(), breaker());
            let mut messages = vec![failing_from(now + Duration::from_secs(first_failure)); 2 * SEVERAL];
            (0..100).for_each(|_| breaker.accepted(now));
            let mut later = next(&breaker);
            later.accepted(now);
            for (index, message) in messages.iter_mut().enumerate() {
                assert_eq!(given_up(&mut breaker, index, message, 0..10), None);
                assert_eq!(given_up(&mut later, index, message, 10..9_999), Some(time));
            }
        }
    }

    #[test]
    fn time_of_a_message_that_fails_alone_begins_again_when_many_fail() {
        let (now, mut breaker) = (Instant::now(), breaker());
        breaker.accepted(now);
        let mut messages = vec![failing_from(now); SEVERAL];
        assert_eq!(given_up(&mut breaker, 0, &mut messages[0], 0..15), None);
        for (index, message) in messages.iter_mut().enumerate().rev() {
            assert_eq!(given_up(&mut breaker, index, message, 15..16), None);
        }
        (0..30).for_each(|_| breaker.accepted(now + Duration::from_secs(16)));
        assert_eq!(given_up(&mut breaker, 0, &mut messages[0], 16..9_999), Some(36));
    }

    #[test]
    fn messages_that_fail_beside_the_last_ones_of_a_bus_that_ends_are_not_given_up() {
        let (now, mut breaker) = (Instant::now(), breaker());
        let mut messages = vec![Attempts::default(); 4 * SEVERAL];
        (0..40).for_each(|_| breaker.accepted(now));
        let mut later = next(&breaker);
        for second in 0..9_999 {
            let breaker = if second < 30 { &mut breaker } else { &mut later };
            for (index, message) in messages.iter_mut().enumerate() {
                let at = now + Duration::from_secs(second);
                assert!(!breaker.is_given_up(index, message, "InternalFailure", at), "message {index}, {second} s");
            }
        }
    }
}
