//! What a process knows from its earlier invocations: which records are settled, how others failed, and whether the bus
//! accepts messages. When Lambda replaces the process, accepted messages may be sent again, and evidence is gathered anew.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use crate::clients::NoSuchBus;
use crate::hints::SentHints;
use crate::message::{Attempts, PendingMessage, Published};
use crate::record::Coordinates;

/// The memory holds the latest records, up to this number (the size of the largest batch), and as many before them.
const LARGEST_BATCH: usize = 10_000;

/// The memory of a process. A clone is the same memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
pub(crate) struct Known {
    /// When the bus was last checked; `None` if the next batch must check it.
    pub(crate) bus_checked: Option<Instant>,
    /// The bus did not exist when a check last had a result.
    pub(crate) missing_bus: Option<NoSuchBus>,
    pub(crate) last_accepted: Option<Instant>,
    /// The code and the id of each message that went to the dead-letter queue without evidence since the bus last accepted
    /// one, with the time of that decision.
    pub(crate) presumed: HashMap<(String, String), Instant>,
    /// Records by their event ids, which are unique: the attempts at the message, or `None` if the record is settled.
    recent: HashMap<String, Option<Attempts>>,
    older: HashMap<String, Option<Attempts>>,
}

impl Memory {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_settled(&self, record: &Coordinates) -> bool {
        matches!(self.lock().get(record), Some(None))
    }

    /// Gives a message that is delivered again its earlier attempts.
    pub(crate) fn recall(&self, message: &mut PendingMessage) {
        if let Some(Some(attempts)) = message.records.first().and_then(|record| self.lock().get(record)) {
            message.resume(attempts);
        }
    }

    pub(crate) fn remember(&self, published: Published, hints: [SentHints; 2]) {
        let mut known = self.lock();
        for (index, PendingMessage { records, attempts, .. }) in published.messages.into_iter().enumerate() {
            let attempts = published.unsettled.contains(&index).then_some(attempts);
            records.into_iter().for_each(|record| known.insert(record, attempts.clone()));
        }
        hints.into_iter().flat_map(|sent| sent.settled).for_each(|record| known.insert(record, None));
    }
}

impl Known {
    fn get(&self, record: &Coordinates) -> Option<Option<Attempts>> {
        let id = record.event_id.as_ref()?;
        self.recent.get(id).or_else(|| self.older.get(id)).cloned()
    }

    /// Forgets the records: a bus that does not exist has dropped the messages that it accepted.
    pub(crate) fn forget_records(&mut self) {
        self.recent.clear();
        self.older.clear();
    }

    fn insert(&mut self, record: Coordinates, attempts: Option<Attempts>) {
        if self.recent.len() >= LARGEST_BATCH {
            self.older = std::mem::take(&mut self.recent);
        }
        if let Some(id) = record.event_id {
            self.recent.insert(id, attempts);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_holds_the_largest_batch_and_a_limited_number_of_records() {
        let mut known = Known::default();
        let record = |n: usize| Coordinates { event_id: Some(n.to_string()), ..Coordinates::default() };
        for n in 0..4 * LARGEST_BATCH {
            known.insert(record(n), None);
            let oldest = n.saturating_sub(LARGEST_BATCH - 1);
            assert!(known.get(&record(oldest)).is_some(), "{oldest} after {n}");
        }
        assert!(known.get(&record(0)).is_none());
        assert!(known.recent.len() + known.older.len() <= 2 * LARGEST_BATCH);
    }
}
