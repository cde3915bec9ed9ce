//! The state machine of one shard and one function.
//!
//! Times are durations since 1970, such as the caller's `now`. They may stay the same between calls but should not
//! decrease.

use std::collections::VecDeque;
use std::time::Duration;

use crate::destination::{DiscardReason, Discarded};
use crate::outcome::InvocationOutcome;
use crate::record::{self, Record};
pub use crate::record_queue::{FIRST_DELAY, LONGEST_DELAY};
use crate::record_queue::{Next, PendingBatch, RecordQueue};
use crate::settings::MappingSettings;
use daybook_stream_batch::SequenceNumber;

/// An event source mapping's work on one shard, for one function.
///
/// Records are spread over `parallelization_factor` record queues by a hash of their item. Each queue has a maximum of
/// one batch in flight, so the records of an item are never in two batches at once.
///
/// A failed batch is handled as AWS documents it:
/// - The records from the checkpoint on are delivered again, after a delay ([`FIRST_DELAY`], doubling up to
///   [`LONGEST_DELAY`]) and before all other records of the queue. A function error has its checkpoint at the first
///   record.
/// - With `bisect_batch_on_function_error` the batch is split first: at the checkpoint, or in halves if the checkpoint
///   is the first record. A split does not use up a retry, so a poison record is isolated before any retry is counted.
/// - When a failure without a split has used up `maximum_retry_attempts`, the records from the checkpoint on are
///   discarded.
/// - Before every delivery, records older than `maximum_record_age` are discarded.
#[derive(Debug)]
pub struct Mapping {
    settings: MappingSettings,
    queues: Vec<RecordQueue>,
    last: Option<SequenceNumber>,
    discarded: VecDeque<Discarded>,
}

#[derive(Debug)]
pub enum Step {
    /// Invoke the function with [`Batch::payload`] and [`Mapping::settle`] the batch. More batches may be ready: with
    /// several record queues, poll again before this one is settled.
    Invoke(Batch),
    /// Send these records to the on-failure destination, or drop them if the mapping has none.
    Discard(Discarded),
    Wait {
        /// When to poll again even if nothing is pushed or settled. `None` if only a push or an outcome can change
        /// anything.
        until: Option<Duration>,
    },
}

/// Records for one invocation. It must be returned with [`Mapping::settle`]. Until then its queue delivers nothing
/// else.
#[derive(Debug)]
pub struct Batch {
    queue: usize,
    pending: PendingBatch,
}

impl Batch {
    /// At least one record, in the order of their sequence numbers.
    pub fn records(&self) -> &[Record] {
        &self.pending.records
    }

    pub fn payload(&self) -> String {
        record::payload(self.records())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RestartPoint {
    /// No record was pushed: begin at the mapping's starting position.
    Start,
    /// Begin at this record, the first that is not done.
    At(SequenceNumber),
    /// Begin after this record: all records up to it are done.
    After(SequenceNumber),
}

impl Mapping {
    /// A mapping without records. A parallelization factor of 0 and a batch size of 0 are read as 1.
    pub fn new(mut settings: MappingSettings) -> Self {
        settings.batch_size = settings.batch_size.max(1);
        let queues = (0..settings.parallelization_factor.max(1)).map(|_| RecordQueue::default()).collect();
        Self { settings, queues, last: None, discarded: VecDeque::new() }
    }

    /// Adds the shard's next record.
    pub fn push(&mut self, record: Record, now: Duration) -> Result<(), OutOfOrder> {
        let number = record.sequence_number().clone();
        if let Some(last) = self.last.as_ref().filter(|last| number <= **last) {
            return Err(OutOfOrder { number, last: last.clone() });
        }
        self.last = Some(number);
        if self.settings.filter.matches(record.json()) {
            let queue = queue_of(&record.item, self.queues.len());
            self.queues[queue].push(record, now);
        }
        Ok(())
    }

    pub fn poll(&mut self, now: Duration) -> Step {
        if let Some(discarded) = self.discarded.pop_front() {
            return Step::Discard(discarded);
        }
        let mut until: Option<Duration> = None;
        for (index, queue) in self.queues.iter_mut().enumerate() {
            match queue.next(now, &self.settings) {
                Next::Deliver(pending) => return Step::Invoke(Batch { queue: index, pending }),
                Next::Discard(expired) => {
                    return Step::Discard(Discarded::new(expired, DiscardReason::RecordAgeExceeded, now, None));
                }
                Next::Wait(of_queue) => until = [until, of_queue].into_iter().flatten().min(),
            }
        }
        Step::Wait { until }
    }

    /// Takes a batch back, with the outcome of its invocation. Panics if the batch is of another mapping, with more record
    /// queues.
    pub fn settle(&mut self, batch: Batch, outcome: InvocationOutcome, now: Duration) {
        let done = outcome.done(batch.records(), self.settings.report_batch_item_failures);
        if let Some(exhausted) = self.queues[batch.queue].settle(batch.pending, done, now, &self.settings) {
            let reason = DiscardReason::RetryAttemptsExhausted;
            self.discarded.push_back(Discarded::new(exhausted, reason, now, Some(outcome)));
        }
    }

    /// The number of records that are not done, and the creation time of the oldest of them.
    pub fn outstanding(&self) -> (usize, Option<Duration>) {
        let created: Vec<_> = self.not_done().map(|(_, created)| created).collect();
        (created.len(), created.into_iter().min())
    }

    /// The point at which to continue after a restart. Records from there on may be delivered twice. None is missed
    /// if the records that [`poll`](Self::poll) has discarded have reached their destination.
    pub fn restart_point(&self) -> RestartPoint {
        match (self.not_done().map(|(number, _)| number).min(), &self.last) {
            (Some(first), _) => RestartPoint::At(first.clone()),
            (None, Some(last)) => RestartPoint::After(last.clone()),
            (None, None) => RestartPoint::Start,
        }
    }

    /// The number and the creation time of each record that is not done: those of the queues, and those that the next calls of
    /// `poll` discard.
    fn not_done(&self) -> impl Iterator<Item = (&SequenceNumber, Duration)> {
        let to_discard = self.discarded.iter().flat_map(|discarded| &discarded.records);
        let to_discard = to_discard.map(|record| (record.sequence_number(), record.created));
        self.queues.iter().flat_map(RecordQueue::outstanding).chain(to_discard)
    }
}

/// A record that was already pushed, or whose successor was already pushed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("record {number} does not come after {last}")]
pub struct OutOfOrder {
    number: SequenceNumber,
    /// The sequence number of the last pushed record.
    last: SequenceNumber,
}

/// FNV-1a, 64 bits: the same on every platform, so that a run can be repeated.
fn queue_of(item: &str, queues: usize) -> usize {
    let hash = item
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let queues = u64::try_from(queues).expect("a count of queues fits 64 bits");
    usize::try_from(hash % queues).expect("a remainder of a usize fits a usize")
}
