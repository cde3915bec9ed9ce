//! One lane of a shard: the records of some of its items, delivered strictly in order, one batch at a time.
//!
//! While a batch fails, nothing behind it in its lane is delivered.

use std::collections::VecDeque;
use std::time::Duration;

use crate::event::{ENVELOPE_BYTES, MAX_PAYLOAD_BYTES, Record};
use crate::outcome::Verdict;
use crate::settings::MappingSettings;
use daybook_stream_batch::SequenceNumber;

/// The delay before a failed batch comes again: this long after the first failure in a row, then doubling. Lambda does
/// not document its own.
pub const FIRST_DELAY: Duration = Duration::from_millis(100);
/// Where the doubling ends.
pub const LONGEST_DELAY: Duration = Duration::from_secs(10);

/// Records that are delivered together.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) records: Vec<Record>,
    /// Invocations that these records were part of and that failed.
    pub(crate) invocations: u32,
    /// Retries used up of the quota. A split uses none.
    retries: u32,
}

/// What a lane has for the function.
pub(crate) enum Next {
    Deliver(Work),
    Discard(Work),
    /// Nothing before that time; `None` when time alone changes nothing.
    Wait(Option<Duration>),
}

#[derive(Debug, Default)]
pub(crate) struct Lane {
    /// What is left of batches that failed, in order and all of it before `fresh`.
    failed: VecDeque<Work>,
    /// Records that were never delivered, with the time at which they came.
    fresh: VecDeque<(Duration, Record)>,
    /// The first record of the batch that the function has now.
    in_flight: Option<SequenceNumber>,
    /// When the last invocation ended: a batching window begins no earlier.
    idle_since: Duration,
    /// Failures in a row.
    failures: u32,
    /// The end of the delay after a failure.
    ready_at: Duration,
}

impl Lane {
    pub(crate) fn push(&mut self, record: Record, now: Duration) {
        self.fresh.push_back((now, record));
    }

    pub(crate) fn next(&mut self, now: Duration, settings: &MappingSettings) -> Next {
        if self.in_flight.is_some() {
            return Next::Wait(None);
        }
        if now < self.ready_at {
            return Next::Wait(Some(self.ready_at));
        }
        let work = match self.failed.pop_front() {
            Some(work) => work,
            None => match self.gather(now, settings) {
                Ok(records) => Work { records, invocations: 0, retries: 0 },
                Err(until) => return Next::Wait(until),
            },
        };
        let work = match settings.maximum_record_age {
            None => work,
            Some(limit) => {
                let is_too_old = |record: &Record| now.saturating_sub(record.created()) > limit;
                let (too_old, rest): (Vec<_>, Vec<_>) = work.records.into_iter().partition(is_too_old);
                if !too_old.is_empty() {
                    if !rest.is_empty() {
                        self.failed.push_front(Work { records: rest, ..work });
                    }
                    return Next::Discard(Work { records: too_old, ..work });
                }
                Work { records: rest, ..work }
            }
        };
        self.in_flight = work.records.first().map(|record| record.sequence_number().clone());
        Next::Deliver(work)
    }

    /// The records of the next batch, once it is full or its window is over; otherwise when that will be.
    fn gather(&mut self, now: Duration, settings: &MappingSettings) -> Result<Vec<Record>, Option<Duration>> {
        let (oldest, _) = self.fresh.front().ok_or(None)?;
        let window_ends = (*oldest).max(self.idle_since) + settings.batching_window;

        let mut bytes = ENVELOPE_BYTES;
        let fits = |(_, record): &&(Duration, Record)| {
            bytes += record.payload_bytes();
            bytes <= MAX_PAYLOAD_BYTES
        };
        // A record that is too large by itself goes alone: that it cannot be delivered is for the function to say.
        let count = self.fresh.iter().take(settings.batch_size).take_while(fits).count().max(1);
        let full = count == settings.batch_size || count < self.fresh.len();
        if !full && now < window_ends {
            return Err(Some(window_ends));
        }
        Ok(self.fresh.drain(..count).map(|(_, record)| record).collect())
    }

    /// Takes back a batch. What is returned has used up its retries.
    pub(crate) fn settle(
        &mut self,
        mut work: Work,
        verdict: Verdict,
        now: Duration,
        settings: &MappingSettings,
    ) -> Option<Work> {
        self.in_flight = None;
        self.idle_since = now;
        let checkpoint = match verdict {
            Verdict::Done => {
                self.failures = 0;
                return None;
            }
            Verdict::NotInvoked => {
                self.delay(now);
                self.failed.push_front(work);
                return None;
            }
            Verdict::FailedFrom(checkpoint) => checkpoint,
        };
        if checkpoint > 0 {
            self.failures = 0;
        }
        work.records.drain(..checkpoint);
        work.invocations += 1;

        let bisect = settings.bisect_batch_on_function_error;
        let split = bisect && (checkpoint > 0 || work.records.len() > 1);
        if !split {
            if settings.maximum_retry_attempts.is_some_and(|quota| work.retries >= quota) {
                self.failures = 0;
                return Some(work);
            }
            work.retries += 1;
        } else if checkpoint == 0 {
            let second_half = work.records.split_off(work.records.len() / 2);
            self.failed.push_front(Work { records: second_half, ..work });
        }
        self.delay(now);
        self.failed.push_front(work);
        None
    }

    fn delay(&mut self, now: Duration) {
        let delay = FIRST_DELAY.saturating_mul(2_u32.saturating_pow(self.failures));
        self.ready_at = now + delay.min(LONGEST_DELAY);
        self.failures = self.failures.saturating_add(1);
    }

    /// The first record that is not done.
    pub(crate) fn first_outstanding(&self) -> Option<&SequenceNumber> {
        let failed = || self.failed.front().and_then(|work| work.records.first());
        let fresh = || self.fresh.front().map(|(_, record)| record);
        self.in_flight.as_ref().or_else(|| failed().or_else(fresh).map(Record::sequence_number))
    }
}
