//! What a process knows from its earlier invocations: which records are settled, how others failed, and whether the bus
//! accepts messages. When Lambda replaces the process, accepted messages may be sent again, and evidence is gathered anew.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use crate::changes_queue::SentChanges;
use crate::message::{History, PendingMessage};
use crate::published::Published;
use crate::record::Coordinates;

/// Maximum records of a generation: those of the largest batch. The two latest generations are known.
const LARGEST_BATCH: usize = 10_000;

/// The memory of a process. A clone is the same memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
pub(crate) struct Known {
    /// When the bus last accepted a message.
    pub(crate) last_accepted: Option<Instant>,
    /// The ids of the messages that went to the dead-letter queue without evidence since the bus last accepted one, by
    /// code, with the time of that decision.
    pub(crate) presumed: HashMap<String, HashMap<String, Instant>>,
    /// Records by their keys: the history of the message, or `None` if the record is settled.
    recent: HashMap<String, Option<History>>,
    older: HashMap<String, Option<History>>,
}

impl Memory {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a message that is delivered again its history. Returns `false` if the message is settled.
    pub(crate) fn recall(&self, message: &mut PendingMessage) -> bool {
        let known = self.lock();
        let of_records: Vec<_> =
            message.records.iter().filter_map(|record| known.get(&record.key(message.id())?)).collect();
        if of_records.iter().any(|history| history.is_none()) {
            return false;
        }
        if let Some(Some(history)) = of_records.first() {
            message.resume((*history).clone());
        }
        true
    }

    /// Whether the changes queue accepted the aggregate of this record.
    pub(crate) fn is_settled(&self, record: &Coordinates) -> bool {
        record.key("").is_some_and(|key| matches!(self.lock().get(&key), Some(None)))
    }

    /// Remembers the records of an invocation.
    pub(crate) fn remember(&self, published: Published, changes: SentChanges) {
        let mut known = self.lock();
        for (index, message) in published.messages.into_iter().enumerate() {
            let keys: Vec<_> = message.records.iter().filter_map(|record| record.key(message.id())).collect();
            let history = published.unsettled.contains(&index).then_some(message.history);
            keys.into_iter().for_each(|key| known.insert(key, history.clone()));
        }
        let keys = changes.settled.iter().filter_map(|record| record.key(""));
        keys.for_each(|key| known.insert(key, None));
    }
}

impl Known {
    fn get(&self, key: &str) -> Option<&Option<History>> {
        self.recent.get(key).or_else(|| self.older.get(key))
    }

    /// A settled record stays settled, even if the batch contains an unsettled copy of it.
    fn insert(&mut self, key: String, history: Option<History>) {
        if matches!(self.get(&key), Some(None)) {
            return;
        }
        if self.recent.len() >= LARGEST_BATCH {
            self.older = std::mem::take(&mut self.recent);
        }
        self.recent.insert(key, history);
    }
}
