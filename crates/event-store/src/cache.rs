//! A cache of the states that this process has folded, so that a warm command needs no read.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use daybook_decider::{Folded, Json};
use daybook_table::AggregateKey;
use lru::LruCache;
use tokio::time::Instant;

const MAX_ENTRIES: usize = 10_000;

/// Maximum bytes of all states, as JSON text. A state in memory is of the same order.
const MAX_BYTES: usize = 32 * 1024 * 1024;

/// An aggregate at some version, with its state as JSON. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The folded state, from which decisions and folds continue.
    pub folded: Folded,
    pub state: Arc<Json>,
}

impl Loaded {
    /// The number of its events; 0 when it does not exist.
    pub fn version(&self) -> u64 {
        self.folded.version()
    }
}

/// A cache that drops the least recently used states first. A state larger than an eighth of the maximum is not
/// cached, so that one state never displaces all others.
pub struct Cache(Mutex<CachedStates>);

struct CachedStates {
    /// One with its history also has the time at which the first of its versions was cached.
    states: LruCache<AggregateKey, (Loaded, Option<Moment>)>,
    bytes: usize,
    max_entries: usize,
    max_bytes: usize,
}

impl Cache {
    pub fn bounded(max_entries: usize, max_bytes: usize) -> Self {
        Self(Mutex::new(CachedStates { states: LruCache::unbounded(), bytes: 0, max_entries, max_bytes }))
    }

    /// The cached state of an aggregate, which may not be its latest version, and the time of its history.
    pub(crate) fn get(&self, key: &AggregateKey) -> Option<(Loaded, Option<Moment>)> {
        self.lock().states.get(key).cloned()
    }

    pub(crate) fn remove(&self, key: &AggregateKey) {
        let mut cached = self.lock();
        if let Some((known, _)) = cached.states.pop(key) {
            cached.bytes -= weight(key, &known);
        }
    }

    /// Caches a state, unless a newer one is cached.
    pub fn put(&self, key: &AggregateKey, loaded: &Loaded) {
        let mut cached = self.lock();
        let known = cached.states.peek(key);
        let since = known.and_then(|(_, since)| *since);
        let since = since.or_else(|| (loaded.folded.history_bytes() > 0).then(Moment::now));
        if known.is_some_and(|(known, _)| known.version() > loaded.version()) {
            return;
        }
        if let Some((known, _)) = cached.states.pop(key) {
            cached.bytes -= weight(key, &known);
        }
        let weight_of_new = weight(key, loaded);
        if weight_of_new > cached.max_bytes / 8 {
            return;
        }
        cached.bytes += weight_of_new;
        cached.states.put(key.clone(), (loaded.clone(), since));
        while cached.states.len() > cached.max_entries || cached.bytes > cached.max_bytes {
            let Some((key, (oldest, _))) = cached.states.pop_lru() else { break };
            cached.bytes -= weight(&key, &oldest);
        }
    }

    /// A panic while the lock was held cannot have left a state half-written, because states are replaced whole.
    fn lock(&self) -> MutexGuard<'_, CachedStates> {
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
        let cached = self.lock();
        f.debug_struct("Cache").field("entries", &cached.states.len()).field("bytes", &cached.bytes).finish()
    }
}

fn weight(key: &AggregateKey, loaded: &Loaded) -> usize {
    key.aggregate_type.len() + key.id.len() + loaded.state.text().len() + loaded.folded.history_bytes()
}

/// A moment by the monotonic clock, which may stand still while Lambda has frozen the process, and by the wall clock, which may be
/// moved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment(Instant, SystemTime);

impl Moment {
    pub(crate) fn now() -> Self {
        Self(Instant::now(), SystemTime::now())
    }

    /// Whether it is at most this long ago by both clocks.
    pub(crate) fn is_within(&self, limit: Duration) -> bool {
        self.0.elapsed() <= limit && self.1.elapsed().is_ok_and(|elapsed| elapsed <= limit)
    }
}
