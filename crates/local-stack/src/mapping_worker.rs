//! The event source mapping in front of a stream function, its state, and the position up to which it has settled a shard. With
//! a data file, the position survives a restart.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use daybook_console::stack::{Mapping as ShownMapping, Shard};
use daybook_event_source_mapping::template::StreamEvent;
use daybook_event_source_mapping::{
    Batch, Discarded, InvocationOutcome, Mapping, Position, Record, SequenceNumber, Source, Step,
};
use daybook_function_runtime::with_causes;
use daybook_local_aws::clock::LocalClock;
use daybook_local_aws::state::{Checkpoint, StackState};
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::mpsc::{self, Receiver};
use tokio::sync::watch;

use crate::discarded::DiscardedRecords;
use crate::functions::Function;
use crate::stream::TableStream;
use crate::termination::StopSignal;
use crate::usage::UsageMeter;

/// Maximum records that are read from a shard before the mapping accepts them.
const READ_AHEAD: usize = 1000;

/// A mapping of a stream to a function.
#[derive(Clone)]
pub(crate) struct MappingWorker {
    pub(crate) function: Function,
    pub(crate) timeout: Duration,
    /// The name of the mapping in the template.
    pub(crate) event_name: String,
    pub(crate) event: StreamEvent,
    pub(crate) stream: TableStream,
    /// Where checkpoints are stored.
    pub(crate) state: StackState,
    pub(crate) discarded: DiscardedRecords,
    pub(crate) states: MappingStates,
    pub(crate) meter: UsageMeter,
    pub(crate) clock: LocalClock,
    pub(crate) stop: StopSignal,
}

impl MappingWorker {
    /// Invokes the function with the records of the stream, until the stack stops.
    pub(crate) async fn run(self) {
        self.stream.follow(&self.stop, |shard| self.clone().run_shard(shard)).await;
    }

    /// Reads a shard from its checkpoint to its end. Ends when all of its records are settled, or when the stack stops.
    async fn run_shard(self, shard: String) {
        let (sender, records) = mpsc::channel(READ_AHEAD);
        let reader = reader_of_stream(self.function.name, &self.event_name, &self.stream.arn);
        let checkpoint = ShardCheckpoint::load(self.state.clone(), &reader, &shard);
        let read = self.stream.read(&shard, checkpoint.position(), sender);
        tokio::select! {
            () = self.invoke_with(records, &shard, checkpoint) => {}
            // After the end of the shard, the records that were read are still delivered.
            () = async { read.await; std::future::pending().await } => {}
        }
    }

    /// Executes the mapping's steps for the records of a shard, until the shard has ended and all records are settled.
    /// When the stack stops, only waits for the invocations that have begun: the next start delivers the other records.
    async fn invoke_with(&self, mut records: Receiver<Record>, shard: &str, mut checkpoint: ShardCheckpoint) {
        let now = || self.clock.since_1970();
        let mut mapping = Mapping::new(self.event.settings.clone());
        let mut running: FuturesUnordered<BoxFuture<'_, (Batch, InvocationOutcome)>> = FuturesUnordered::new();
        let (mut settled, mut ended, mut stopping, mut last_result) = (false, false, false, None);
        let mut paused = self.states.paused();
        loop {
            let is_paused = paused.borrow_and_update().contains(self.function.name) && !stopping;
            let wake = loop {
                if is_paused {
                    break None;
                }
                match mapping.poll(now()) {
                    Step::Invoke(batch) if stopping => mapping.settle(batch, InvocationOutcome::NotInvoked, now()),
                    Step::Invoke(batch) => running.push(Box::pin(self.invoke(batch))),
                    Step::Discard(discarded) => self.discard(&discarded, shard),
                    Step::Wait { until } => break until,
                }
            };
            // Discarded records are stored by now. While many records are read, neither position nor state is stored
            // after each of them.
            if settled || stopping || records.is_empty() {
                let (waiting, oldest) = mapping.outstanding();
                let state = ShardState { waiting, oldest, last_result };
                self.states.set(self.function.name, &self.event_name, shard, state);
                checkpoint.save(mapping.position());
                settled = false;
            }
            if running.is_empty() && (stopping || ended && wake.is_none() && !is_paused) {
                return;
            }
            let pause = wake.map_or(Duration::MAX, |until| until.saturating_sub(now()));
            tokio::select! {
                Some((batch, outcome)) = running.next(), if !running.is_empty() => {
                    last_result = Some(result_of(&outcome));
                    mapping.settle(batch, outcome, now());
                    settled = true;
                }
                record = records.recv(), if !ended && !stopping => match record {
                    // The mapping rejects a record that it already has: a reader that starts over sends it again.
                    Some(record) => drop(mapping.push(record, now())),
                    None => ended = true,
                },
                () = self.stop.wait(), if !stopping => stopping = true,
                _ = paused.changed() => {}
                () = tokio::time::sleep(pause), if !stopping => {}
            }
        }
    }

    fn discard(&self, discarded: &Discarded, shard: &str) {
        let function_arn = self.function.name;
        let stream_arn = &self.stream.arn;
        let source = Source { function_arn, stream_arn, shard_id: shard, request_id: "daybook-dev" };
        tracing::error!(function = function_arn, reason = ?discarded.reason, "records discarded");
        self.discarded.push(&discarded.document(&source));
    }

    async fn invoke(&self, batch: Batch) -> (Batch, InvocationOutcome) {
        self.meter.count_invocation(self.function.name);
        let outcome = self.function.invoke(batch.payload(), self.timeout).await;
        (batch, outcome)
    }
}

/// The name under which a mapping stores its checkpoints of a stream.
pub(crate) fn reader_of_stream(function: &str, event: &str, stream_arn: &str) -> String {
    format!("{function} {event} {stream_arn}")
}

/// The position of a mapping in a shard.
struct ShardCheckpoint {
    state: StackState,
    reader: String,
    saved: Position,
}

impl ShardCheckpoint {
    /// The stored position, or the start of the shard. `reader` is the mapping's name.
    fn load(state: StackState, reader: &str, shard: &str) -> Self {
        let reader = format!("{reader} {shard}");
        let stored = state.checkpoint(&reader).unwrap_or_else(|error| {
            tracing::error!(
                error = with_causes(&error),
                "cannot read the checkpoint, will read the shard from its start"
            );
            None
        });
        let position = stored.and_then(|Checkpoint { sequence_number, is_settled }| {
            let number = SequenceNumber::parse(&sequence_number)?;
            Some(if is_settled { Position::After(number) } else { Position::At(number) })
        });
        Self { state, reader, saved: position.unwrap_or(Position::Start) }
    }

    /// The position that was stored last.
    fn position(&self) -> Position {
        self.saved.clone()
    }

    /// Stores a position. If that fails, records are delivered again after a restart.
    fn save(&mut self, position: Position) {
        let (number, is_settled) = match &position {
            Position::Start => return,
            Position::At(number) => (number, false),
            Position::After(number) => (number, true),
        };
        if position == self.saved {
            return;
        }
        let checkpoint = Checkpoint { sequence_number: number.as_str().to_owned(), is_settled };
        match self.state.save_checkpoint(&self.reader, &checkpoint) {
            Ok(()) => self.saved = position,
            Err(error) => tracing::error!(error = with_causes(&error), "cannot store the checkpoint"),
        }
    }
}

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
struct ShardState {
    /// The number of records that are not settled.
    waiting: usize,
    /// The creation time of the oldest of them, since 1970.
    oldest: Option<Duration>,
    /// The result of the last invocation; `None` before the first.
    last_result: Option<&'static str>,
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
    fn set(&self, function: &'static str, mapping: &str, shard: &str, state: ShardState) {
        if let Some(mapping) = self.lock().get_mut(&(function, mapping.to_owned())) {
            mapping.shards.insert(shard.to_owned(), state);
        }
    }

    /// Replaces the functions that are not invoked, as if their mappings were disabled: their records wait in the stream.
    pub(crate) fn pause(&self, functions: BTreeSet<&'static str>) {
        self.paused.send_replace(functions);
    }

    /// The paused functions, and when they change.
    fn paused(&self) -> watch::Receiver<BTreeSet<&'static str>> {
        self.paused.subscribe()
    }

    /// Whether no record waits for a function, except for paused functions.
    pub(crate) fn are_idle(&self) -> bool {
        let paused = self.paused.borrow().clone();
        let states = self.lock();
        let running = states.iter().filter(|((function, _), _)| !paused.contains(function));
        running.flat_map(|(_, state)| state.shards.values()).all(|shard| shard.waiting == 0)
    }

    pub(crate) fn all(&self) -> Vec<ShownMapping> {
        let now = self.clock.since_1970();
        let age = |oldest: Duration| i64::try_from(now.saturating_sub(oldest).as_millis()).unwrap_or(i64::MAX);
        let shard = |(shard, state): (&String, &ShardState)| Shard {
            shard: shard.clone(),
            waiting: state.waiting,
            oldest_age_ms: state.oldest.map(age),
            last_result: state.last_result.map(str::to_owned),
        };
        let states = self.lock();
        let mapping = |((function, mapping), state): (&MappingName, &MappingState)| ShownMapping {
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
fn result_of(outcome: &InvocationOutcome) -> &'static str {
    match outcome {
        InvocationOutcome::Returned(response) if response.contains("itemIdentifier") => "some records are unsettled",
        InvocationOutcome::Returned(_) => "OK",
        InvocationOutcome::FunctionError => "PROBLEM: the function failed",
        InvocationOutcome::NotInvoked => "PROBLEM: the function was not invoked",
    }
}
