//! A record queue: the records of some of a shard's items, delivered strictly in order, one batch at a time.
//!
//! While a batch fails, the records after it in its queue are not delivered.

use std::collections::VecDeque;
use std::time::Duration;

use crate::record::{ENVELOPE_BYTES, MAX_PAYLOAD_BYTES, Record};
use crate::settings::MappingSettings;
use daybook_stream_batch::SequenceNumber;

/// The delay before a failed batch is retried after the first failure; it doubles with each further failure. Lambda
/// does not document its own delays.
pub const FIRST_DELAY: Duration = Duration::from_millis(100);
pub const LONGEST_DELAY: Duration = Duration::from_secs(10);

/// Records that are delivered together until they are split.
#[derive(Debug)]
pub(crate) struct PendingBatch {
    pub(crate) records: Vec<Record>,
    /// The number of failed invocations with these records.
    pub(crate) invocations: u32,
    /// The number of retries that are used up. A split uses none.
    retries: u32,
}

pub(crate) enum Next {
    Deliver(PendingBatch),
    Discard(PendingBatch),
    /// No step before this time; `None` if only a push or an outcome can change anything.
    Wait(Option<Duration>),
}

#[derive(Debug, Default)]
pub(crate) struct RecordQueue {
    /// The remaining records of failed batches, in order. All of them precede `fresh`.
    failed: VecDeque<PendingBatch>,
    /// Records that were not delivered yet, with the time at which they were pushed.
    fresh: VecDeque<(Duration, Record)>,
    /// The number and the creation time of each record of the batch that the caller has.
    in_flight: Option<Vec<(SequenceNumber, Duration)>>,
    /// The end of the last invocation: a batching window begins no earlier.
    idle_since: Duration,
    /// The number of consecutive failures.
    failures: u32,
    /// The end of the delay after a failure.
    ready_at: Duration,
}

impl RecordQueue {
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
        let mut batch = match self.failed.pop_front() {
            Some(batch) => batch,
            None => match self.gather(now, settings) {
                Ok(records) => PendingBatch { records, invocations: 0, retries: 0 },
                Err(until) => return Next::Wait(until),
            },
        };
        let limit = settings.maximum_record_age;
        let is_too_old = |record: &mut Record| limit.is_some_and(|limit| now.saturating_sub(record.created) > limit);
        let too_old: Vec<_> = batch.records.extract_if(.., is_too_old).collect();
        if !too_old.is_empty() {
            let too_old = PendingBatch { records: too_old, ..batch };
            if !batch.records.is_empty() {
                self.failed.push_front(batch);
            }
            return Next::Discard(too_old);
        }
        let in_flight = batch.records.iter().map(|record| (record.sequence_number().clone(), record.created));
        self.in_flight = Some(in_flight.collect());
        Next::Deliver(batch)
    }

    /// Returns the records of the next batch if it is full or its window has ended; otherwise, the end of the window.
    fn gather(&mut self, now: Duration, settings: &MappingSettings) -> Result<Vec<Record>, Option<Duration>> {
        let (oldest, _) = self.fresh.front().ok_or(None)?;
        let window_ends = (*oldest).max(self.idle_since) + settings.batching_window;

        let mut bytes = ENVELOPE_BYTES;
        let fits = |(_, record): &&(Duration, Record)| {
            bytes += record.payload_bytes();
            bytes <= MAX_PAYLOAD_BYTES
        };
        // A record above the limit is delivered alone: the invocation then fails.
        let count = self.fresh.iter().take(settings.batch_size).take_while(fits).count().max(1);
        let full = count == settings.batch_size || count < self.fresh.len();
        if !full && now < window_ends {
            return Err(Some(window_ends));
        }
        Ok(self.fresh.drain(..count).map(|(_, record)| record).collect())
    }

    /// Settles a batch of which so many records are done; `None` if the function was not invoked with it. Returns the
    /// records that have used up their retries.
    pub(crate) fn settle(
        &mut self,
        mut batch: PendingBatch,
        done: Option<usize>,
        now: Duration,
        settings: &MappingSettings,
    ) -> Option<PendingBatch> {
        self.in_flight = None;
        self.idle_since = now;
        let Some(done) = done else {
            self.delay(now);
            self.failed.push_front(batch);
            return None;
        };
        if done > 0 {
            self.failures = 0;
        }
        batch.records.drain(..done);
        if batch.records.is_empty() {
            return None;
        }
        batch.invocations += 1;

        let bisect = settings.bisect_batch_on_function_error;
        let split = bisect && (done > 0 || batch.records.len() > 1);
        if !split {
            if settings.maximum_retry_attempts.is_some_and(|quota| batch.retries >= quota) {
                self.failures = 0;
                return Some(batch);
            }
            batch.retries += 1;
        } else if done == 0 {
            let second_half = batch.records.split_off(batch.records.len() / 2);
            self.failed.push_front(PendingBatch { records: second_half, ..batch });
        }
        self.delay(now);
        self.failed.push_front(batch);
        None
    }

    fn delay(&mut self, now: Duration) {
        let delay = FIRST_DELAY.saturating_mul(2_u32.saturating_pow(self.failures));
        self.ready_at = now + delay.min(LONGEST_DELAY);
        self.failures = self.failures.saturating_add(1);
    }

    /// The records that are not done, in any order: the number and the creation time of each.
    pub(crate) fn outstanding(&self) -> impl Iterator<Item = (&SequenceNumber, Duration)> {
        let failed = self.failed.iter().flat_map(|batch| &batch.records);
        let waiting = failed.chain(self.fresh.iter().map(|(_, record)| record));
        let in_flight = self.in_flight.iter().flatten().map(|(number, created)| (number, *created));
        waiting.map(|record| (record.sequence_number(), record.created)).chain(in_flight)
    }
}
