//! The state machine of one shard and one function.
//!
//! Times are durations since 1970, as `now` of the caller; they may stand still but should not run backwards.

use std::collections::VecDeque;
use std::time::Duration;

use crate::destination::{Discarded, Reason};
use crate::event::{self, Record};
pub use crate::lane::{FIRST_DELAY, LONGEST_DELAY};
use crate::lane::{Lane, Next, Work};
use crate::outcome::Outcome;
use crate::settings::MappingSettings;
use daybook_stream_batch::SequenceNumber;

/// An event source mapping's work on one shard, for one function.
///
/// Records are spread over `parallelization_factor` lanes by a hash of their item. Each lane has at most one batch out,
/// so one item's records never meet in two batches.
///
/// What comes of a batch that fails, as AWS documents it:
/// - From the checkpoint on it comes again, after a delay ([`FIRST_DELAY`], doubling to [`LONGEST_DELAY`]), before
///   anything else of its lane. A function error has its checkpoint at the first record.
/// - With `bisect_batch_on_function_error` it is split first: at the checkpoint, or in halves when the checkpoint is the
///   first record. A split does not use up a retry, so a poison record ends up alone before any retry is counted.
/// - When a failure that splits nothing has used up `maximum_retry_attempts`, the batch is discarded from the checkpoint on.
/// - Before every delivery, records older than `maximum_record_age` are discarded.
#[derive(Debug)]
pub struct Mapping {
    settings: MappingSettings,
    lanes: Vec<Lane>,
    last: Option<SequenceNumber>,
    discarded: VecDeque<Discarded>,
}

/// What to do next.
#[derive(Debug)]
#[must_use]
pub enum Step {
    /// Invoke the function with [`Batch::payload`] and [`Mapping::settle`] how it went. More batches may be ready: with
    /// several lanes, poll again before this one is settled.
    Invoke(Batch),
    /// Send these to the on-failure destination, or drop them when the mapping has none.
    Discard(Discarded),
    /// Nothing now.
    Wait {
        /// When to poll again even if nothing is pushed or settled. `None`: time alone changes nothing.
        until: Option<Duration>,
    },
}

/// Records for one invocation. It must be given back with [`Mapping::settle`]: until then its lane stands still.
#[derive(Debug)]
#[must_use]
pub struct Batch {
    lane: usize,
    work: Work,
}

impl Batch {
    /// At least one record, in the order of their sequence numbers.
    pub fn records(&self) -> &[Record] {
        &self.work.records
    }

    /// How often the function has been invoked with these records, this time included.
    pub fn attempt(&self) -> u32 {
        self.work.invocations + 1
    }

    /// The JSON text to invoke the function with.
    pub fn payload(&self) -> String {
        event::payload(self.records())
    }
}

/// Where a reader of the shard that starts over should begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Position {
    /// Nothing was pushed: at the mapping's starting position.
    Start,
    /// At this record: it is the first that is not done.
    At(SequenceNumber),
    /// After this record: everything up to it is done.
    After(SequenceNumber),
}

impl Mapping {
    /// A mapping that has seen nothing. A parallelization factor of 0 is taken for 1, and a batch size of 0 too.
    pub fn new(mut settings: MappingSettings) -> Self {
        settings.batch_size = settings.batch_size.max(1);
        let lanes = (0..settings.parallelization_factor.max(1)).map(|_| Lane::default()).collect();
        Self { settings, lanes, last: None, discarded: VecDeque::new() }
    }

    /// Takes the shard's next record.
    ///
    /// # Errors
    ///
    /// When its number is not above that of the record before it.
    pub fn push(&mut self, record: Record, now: Duration) -> Result<(), OutOfOrder> {
        let number = record.sequence_number().clone();
        if let Some(last) = self.last.as_ref().filter(|last| number <= **last) {
            return Err(OutOfOrder { number, last: last.clone() });
        }
        self.last = Some(number);
        if self.settings.filter.matches(record.json()) {
            let lane = lane_of(record.item(), self.lanes.len());
            self.lanes[lane].push(record, now);
        }
        Ok(())
    }

    /// What to do next.
    pub fn poll(&mut self, now: Duration) -> Step {
        if let Some(discarded) = self.discarded.pop_front() {
            return Step::Discard(discarded);
        }
        let mut until: Option<Duration> = None;
        for (index, lane) in self.lanes.iter_mut().enumerate() {
            match lane.next(now, &self.settings) {
                Next::Deliver(work) => return Step::Invoke(Batch { lane: index, work }),
                Next::Discard(work) => {
                    return Step::Discard(Discarded::new(work, Reason::RecordAgeExceeded, now, None));
                }
                Next::Wait(lanes_until) => until = [until, lanes_until].into_iter().flatten().min(),
            }
        }
        Step::Wait { until }
    }

    /// Takes a batch back, with how its invocation ended.
    ///
    /// # Panics
    ///
    /// When the batch is another mapping's that has more lanes.
    pub fn settle(&mut self, batch: Batch, outcome: Outcome, now: Duration) {
        let verdict = outcome.verdict(batch.records(), self.settings.report_batch_item_failures);
        let exhausted = self.lanes[batch.lane].settle(batch.work, verdict, now, &self.settings);
        self.discarded
            .extend(exhausted.map(|work| Discarded::new(work, Reason::RetryAttemptsExhausted, now, Some(outcome))));
    }

    /// Where to read on after a restart. Records from there on may come a second time, and none is missed, as long as
    /// what was discarded has reached its destination.
    pub fn position(&self) -> Position {
        let outstanding = self.lanes.iter().filter_map(Lane::first_outstanding).min();
        match (outstanding, &self.last) {
            (Some(first), _) => Position::At(first.clone()),
            (None, Some(last)) => Position::After(last.clone()),
            (None, None) => Position::Start,
        }
    }
}

/// A record that was pushed before, or too late.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("record {number} does not come after {last}")]
pub struct OutOfOrder {
    /// Its number.
    pub number: SequenceNumber,
    /// The number of the record that was pushed before it.
    pub last: SequenceNumber,
}

/// FNV-1a, 64 bits: the same on every machine, so that a run can be repeated.
fn lane_of(item: &str, lanes: usize) -> usize {
    let hash = item
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let lanes = u64::try_from(lanes).expect("a count of lanes fits 64 bits");
    usize::try_from(hash % lanes).expect("a remainder of a usize fits a usize")
}
