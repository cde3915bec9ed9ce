//! What a process knows from its earlier invocations: which records are settled, how others failed, and whether the bus
//! accepts messages. When Lambda replaces the process, accepted messages may be sent again, and evidence is gathered anew.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use crate::changes_queue::SentChanges;
use crate::message::{History, PendingMessage, Published};
use crate::record::Coordinates;

/// The memory holds the latest records, up to this number (the size of the largest batch), and as many before them.
const LARGEST_BATCH: usize = 10_000;

/// The memory of a process. A clone is the same memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) last_accepted: Option<Instant>,
    /// The code and the id of each message that went to the dead-letter queue without evidence since the bus last accepted
    /// one, with the time of that decision.
    pub(crate) presumed: HashMap<(String, String), Instant>,
    /// Records by their event ids, which are unique: the history of the message, or `None` if the record is settled.
    recent: HashMap<String, Option<History>>,
    older: HashMap<String, Option<History>>,
}

impl Memory {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a record was settled by an earlier invocation.
    pub(crate) fn is_settled(&self, record: &Coordinates) -> bool {
        matches!(self.lock().get(record), Some(None))
    }

    /// Gives a message that is delivered again its history.
    pub(crate) fn recall(&self, message: &mut PendingMessage) {
        if let Some(Some(history)) = message.records.first().and_then(|record| self.lock().get(record)) {
            message.resume(history);
        }
    }

    pub(crate) fn remember(&self, published: Published, changes: SentChanges) {
        let mut known = self.lock();
        for (index, PendingMessage { records, history, .. }) in published.messages.into_iter().enumerate() {
            let history = published.unsettled.contains(&index).then_some(history);
            records.into_iter().for_each(|record| known.insert(record, history.clone()));
        }
        changes.settled.into_iter().for_each(|record| known.insert(record, None));
    }
}

impl Known {
    fn get(&self, record: &Coordinates) -> Option<Option<History>> {
        let id = record.event_id.as_ref()?;
        self.recent.get(id).or_else(|| self.older.get(id)).cloned()
    }

    /// A settled record stays settled, even if the batch contains an unsettled copy of it.
    fn insert(&mut self, record: Coordinates, history: Option<History>) {
        if self.recent.len() >= LARGEST_BATCH {
            self.older = std::mem::take(&mut self.recent);
        }
        let is_settled = matches!(self.get(&record), Some(None));
        if let Some(id) = record.event_id {
            self.recent.insert(id, history.filter(|_| !is_settled));
        }
    }
}
