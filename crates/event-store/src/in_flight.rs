//! The decisions in flight of this process: those whose events may still become visible.
//!
//! A feed ends before the oldest of them. Later decisions have later ids, so the feed skips no event of this process, even
//! without a delay.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use daybook_table::Clock;
use jiff::Timestamp;
use tokio::time::Instant;

use crate::settle::{ARRIVAL_TIME, SETTLE_WRITES};

/// The decisions in flight. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct InFlight(Arc<Mutex<Decisions>>);

#[derive(Debug, Default)]
struct Decisions {
    /// The number of decisions so far, from which each gets its number.
    begun: u64,
    /// The time of each decision, by its number, and the moment from which it is not in flight any more.
    times: BTreeMap<u64, (Timestamp, Instant)>,
}

/// A decision in flight, until this is dropped. It belongs to the rows and not to the request: if a request is cancelled,
/// its transaction may still be stored. The default is none.
#[derive(Debug, Default)]
pub(crate) struct DecisionInFlight {
    all: InFlight,
    number: u64,
    /// Whether its transaction is sent and the outcome is unknown. If this is dropped then, the decision stays in flight
    /// as long as the transaction may take effect.
    pub(crate) is_in_doubt: bool,
}

impl InFlight {
    /// Begins a decision. The time of its events must be read from the same clock afterwards.
    pub(crate) fn begin(&self, clock: &Clock) -> DecisionInFlight {
        let mut decisions = self.lock();
        decisions.begun += 1;
        let number = decisions.begun;
        // The times are in the order of the numbers, because the clock is read under the lock.
        decisions.times.insert(number, (clock.now(), Instant::now() + SETTLE_WRITES));
        DecisionInFlight { all: self.clone(), number, is_in_doubt: false }
    }

    /// The time of the oldest decision in flight.
    pub(crate) fn oldest(&self) -> Option<Timestamp> {
        self.lock().times.first_key_value().map(|(_, (time, _))| *time)
    }

    /// A panic while the lock was held cannot have left the map half-changed.
    fn lock(&self) -> MutexGuard<'_, Decisions> {
        let mut decisions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(oldest) = decisions.times.first_entry().filter(|oldest| oldest.get().1 <= Instant::now()) {
            oldest.remove();
        }
        decisions
    }
}

impl Drop for DecisionInFlight {
    fn drop(&mut self) {
        let mut decisions = self.all.lock();
        if !self.is_in_doubt {
            decisions.times.remove(&self.number);
        } else if let Some((_, until)) = decisions.times.get_mut(&self.number) {
            *until = Instant::now() + ARRIVAL_TIME;
        }
    }
}
