//! When an event becomes visible: within [`SETTLE_WRITES`] of its decision, or never. A decision is *in flight* while its events
//! may still become visible.
//!
//! The time and the id of an event are fixed when it is decided, and its rows are visible some time later. A reader
//! that follows events by their ids can rely on its cursor only up to events that are older than [`SETTLE_WRITES`]:
//! later events with earlier ids may still appear until then. The difference between the clocks of writers and
//! readers is not included.
//!
//! A feed ends before the oldest decision in flight. Later decisions have later ids, so the feed skips no event of this process,
//! even without a delay.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use daybook_table::Clock;
use jiff::Timestamp;
use tokio::time::Instant;

/// Maximum age of a decision when its transaction is sent. An older decision is made again, with a new time and new
/// ids. This much time is used only by a process that stalls, or encodes megabytes on a small share of a CPU.
pub const SEND_WINDOW: Duration = Duration::from_secs(2);

/// Time limit of the call that sends a transaction. DynamoDB responds within milliseconds; the first call of a process
/// takes up to a second, because it opens the connection. A transaction is sent once: if its outcome is unknown, the
/// next attempt is a new decision on the same version, and only one of the two can be stored.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(2);

/// Time for which a call may still take effect after its sender has stopped waiting: the call may be on its way through
/// the network, or DynamoDB may have begun the transaction, which it then finishes. It matters only if the sender
/// cannot make another attempt, because its time is over or its process has ended.
pub const ARRIVAL_TIME: Duration = Duration::from_secs(1);

/// The longest time between the decision on an event, which is its time and the time of its id, and the moment when
/// its rows are visible to a strongly consistent read.
pub const SETTLE_WRITES: Duration = SEND_WINDOW.saturating_add(CALL_TIMEOUT).saturating_add(ARRIVAL_TIME);

#[derive(Clone, Debug, Default)]
pub(crate) struct InFlight(Arc<Mutex<DecisionTimes>>);

#[derive(Debug, Default)]
struct DecisionTimes {
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

    pub(crate) fn oldest(&self) -> Option<Timestamp> {
        self.lock().times.first_key_value().map(|(_, (time, _))| *time)
    }

    /// A panic while the lock was held cannot have left the map half-changed.
    fn lock(&self) -> MutexGuard<'_, DecisionTimes> {
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
