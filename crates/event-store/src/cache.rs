//! The states that this process has folded, so that a warm command needs no read.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use daybook_table::AggregateKey;
use lru::LruCache;

use crate::load::Loaded;

/// Entries kept at most.
const MAX_ENTRIES: usize = 10_000;

/// Bytes of states kept at most, as JSON text. A state in memory is of the same order.
const MAX_BYTES: usize = 32 * 1024 * 1024;

/// The least recently used states go first. One state never displaces all others: a state beyond an eighth of the room
/// is not kept.
pub struct Cache(Mutex<Held>);

struct Held {
    states: LruCache<AggregateKey, Loaded>,
    bytes: usize,
    max_entries: usize,
    max_bytes: usize,
}

impl Cache {
    /// A cache with these bounds.
    pub fn bounded(max_entries: usize, max_bytes: usize) -> Self {
        Self(Mutex::new(Held { states: LruCache::unbounded(), bytes: 0, max_entries, max_bytes }))
    }

    /// What is known of an aggregate; perhaps not its newest version.
    pub fn get(&self, key: &AggregateKey) -> Option<Loaded> {
        self.lock().states.get(key).cloned()
    }

    /// Remembers a state, unless a newer one is known.
    pub fn put(&self, key: &AggregateKey, loaded: &Loaded) {
        let mut held = self.lock();
        if held.states.peek(key).is_some_and(|known| known.version() > loaded.version()) {
            return;
        }
        if let Some(known) = held.states.pop(key) {
            held.bytes -= weight(key, &known);
        }
        let weight_of_new = weight(key, loaded);
        if weight_of_new > held.max_bytes / 8 {
            return;
        }
        held.bytes += weight_of_new;
        held.states.put(key.clone(), loaded.clone());
        while held.states.len() > held.max_entries || held.bytes > held.max_bytes {
            let Some((key, oldest)) = held.states.pop_lru() else { break };
            held.bytes -= weight(&key, &oldest);
        }
    }

    /// A panic while the lock was held cannot have left a state half-written: states are replaced whole.
    fn lock(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Cache {
    fn default() -> Self {
        Self::bounded(MAX_ENTRIES, MAX_BYTES)
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = self.lock();
        f.debug_struct("Cache").field("entries", &held.states.len()).field("bytes", &held.bytes).finish()
    }
}

fn weight(key: &AggregateKey, loaded: &Loaded) -> usize {
    key.aggregate_type.len() + key.id.len() + loaded.state.text().len() + loaded.folded.history_bytes()
}
