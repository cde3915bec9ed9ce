//! The states of the stack's event source mappings, for the endpoint that shows them, and which functions are paused.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use daybook_console::stack::{Mapping, Shard};
use daybook_event_source_mapping::InvocationOutcome;
use daybook_local_aws::clock::LocalClock;
use tokio::sync::watch;

/// The states of all mappings. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct MappingStates {
    states: Arc<Mutex<BTreeMap<MappingName, MappingState>>>,
    paused: watch::Sender<BTreeSet<&'static str>>,
    clock: LocalClock,
}

/// The function of a mapping, and the mapping's name in the template.
type MappingName = (&'static str, String);

#[derive(Default)]
struct MappingState {
    enabled: bool,
    shards: BTreeMap<String, ShardState>,
}

/// The state of a mapping in a shard.
#[derive(Clone, Default)]
pub(crate) struct ShardState {
    /// The number of records that are not settled.
    pub(crate) waiting: usize,
    /// The creation time of the oldest of them, since 1970.
    pub(crate) oldest: Option<Duration>,
    /// The result of the last invocation; `None` before the first.
    pub(crate) last_result: Option<&'static str>,
}

impl MappingStates {
    /// No mappings. Their records have the times of this clock.
    pub(crate) fn new(clock: LocalClock) -> Self {
        Self { clock, ..Self::default() }
    }

    pub(crate) fn add(&self, function: &'static str, mapping: &str, enabled: bool) {
        self.lock().insert((function, mapping.to_owned()), MappingState { enabled, ..MappingState::default() });
    }

    /// Replaces the state of a mapping in a shard.
    pub(crate) fn set(&self, function: &'static str, mapping: &str, shard: &str, state: ShardState) {
        if let Some(mapping) = self.lock().get_mut(&(function, mapping.to_owned())) {
            mapping.shards.insert(shard.to_owned(), state);
        }
    }

    /// Replaces the functions that are not invoked, as if their mappings were disabled: their records wait in the stream.
    pub(crate) fn pause(&self, functions: BTreeSet<&'static str>) {
        self.paused.send_replace(functions);
    }

    /// The paused functions, and when they change.
    pub(crate) fn paused(&self) -> watch::Receiver<BTreeSet<&'static str>> {
        self.paused.subscribe()
    }

    /// Whether no record waits for a function, except for paused functions.
    pub(crate) fn are_idle(&self) -> bool {
        let paused = self.paused.borrow().clone();
        let states = self.lock();
        let running = states.iter().filter(|((function, _), _)| !paused.contains(function));
        running.flat_map(|(_, state)| state.shards.values()).all(|shard| shard.waiting == 0)
    }

    pub(crate) fn all(&self) -> Vec<Mapping> {
        let now = self.clock.since_1970();
        let age = |oldest: Duration| i64::try_from(now.saturating_sub(oldest).as_millis()).unwrap_or(i64::MAX);
        let shard = |(shard, state): (&String, &ShardState)| Shard {
            shard: shard.clone(),
            waiting: state.waiting,
            oldest_age_ms: state.oldest.map(age),
            last_result: state.last_result.map(str::to_owned),
        };
        let states = self.lock();
        let mapping = |((function, mapping), state): (&MappingName, &MappingState)| Mapping {
            function: (*function).to_owned(),
            mapping: mapping.clone(),
            enabled: state.enabled,
            paused: self.paused.borrow().contains(function),
            shards: state.shards.iter().map(shard).collect(),
        };
        states.iter().map(mapping).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<MappingName, MappingState>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The outcome of an invocation in the words of the endpoint.
pub(crate) fn result_of(outcome: &InvocationOutcome) -> &'static str {
    match outcome {
        InvocationOutcome::Returned(response) if response.contains("itemIdentifier") => "some records are unsettled",
        InvocationOutcome::Returned(_) => "OK",
        InvocationOutcome::FunctionError => "PROBLEM: the function failed",
        InvocationOutcome::NotInvoked => "PROBLEM: the function was not invoked",
    }
}
