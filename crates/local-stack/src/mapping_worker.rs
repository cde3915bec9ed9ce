//! The event source mapping in front of a stream function, its state, and the point up to which it has settled the stream.
//! With a data file, that point survives a restart.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use daybook_console::stack::{Shard, ShownMapping};
use daybook_event_source_mapping::template::StreamEvent;
use daybook_event_source_mapping::{
    Batch, DiscardContext, Discarded, InvocationOutcome, Mapping, Record, RestartPoint, SequenceNumber, Step,
};
use daybook_function_runtime::with_causes;
use daybook_local_aws::clock::LocalClock;
use daybook_local_aws::dynamodb::{StreamReader, TableStream};
use daybook_local_aws::state::{Checkpoint, StackState};
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::error::DevError;
use crate::functions::Function;
use crate::services::DiscardedRecords;
use crate::usage::UsageMeter;

/// The pause between two looks for new records. Lambda polls four times a second.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

pub(crate) struct MappingWorker {
    pub(crate) function: Function,
    pub(crate) timeout: Duration,
    /// The name of the mapping in the template.
    pub(crate) event_name: String,
    pub(crate) event: StreamEvent,
    pub(crate) stream: TableStream,
    pub(crate) checkpoint: StreamCheckpoint,
    pub(crate) discarded: DiscardedRecords,
    pub(crate) states: MappingStates,
    pub(crate) meter: UsageMeter,
    pub(crate) clock: LocalClock,
    pub(crate) stop: CancellationToken,
}

impl MappingWorker {
    /// Invokes the function with the records of the stream, until the stack stops. Then only waits for the invocations that have
    /// begun: the next start delivers the other records.
    pub(crate) async fn run(mut self) {
        if let Err(error) = self.follow().await {
            tracing::error!(function = self.function.name, error = with_causes(&error), "the mapping has ended");
        }
    }

    async fn follow(&mut self) -> Result<(), DevError> {
        let clock = self.clock.clone();
        let now = || clock.since_1970();
        let mut reader = self.checkpoint.reader(&self.stream)?;
        let mut mapping = Mapping::new(self.event.settings.clone());
        let mut running: FuturesUnordered<BoxFuture<'static, (Batch, InvocationOutcome)>> = FuturesUnordered::new();
        let (mut stopping, mut last_result) = (false, None);
        let mut poll = interval(POLL_INTERVAL);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let mut waits = self.states.is_paused(self.function.name) && !stopping;
            while !waits {
                match mapping.poll(now()) {
                    Step::Invoke(batch) if stopping => mapping.settle(batch, InvocationOutcome::NotInvoked, now()),
                    Step::Invoke(batch) => running.push(self.invoke(batch)),
                    Step::Discard(discarded) => self.discard(&discarded),
                    Step::Wait { .. } => waits = true,
                }
            }
            // Discarded records are stored by now.
            let (waiting, oldest) = mapping.outstanding();
            self.states.set(self.function.name, &self.event_name, ShardState { waiting, oldest, last_result });
            self.checkpoint.save(mapping.restart_point());
            if stopping && running.is_empty() {
                return Ok(());
            }
            tokio::select! {
                Some((batch, outcome)) = running.next(), if !running.is_empty() => {
                    last_result = Some(result_of(&outcome));
                    mapping.settle(batch, outcome, now());
                }
                _ = poll.tick(), if !stopping => {
                    let records = reader.records().unwrap_or_else(|error| {
                        tracing::warn!(error = with_causes(&error), "cannot read the stream, will retry");
                        Vec::new()
                    });
                    if !records.is_empty() {
                        poll.reset_immediately();
                    }
                    for record in records {
                        let record = Record::from_stream(record, &self.stream.arn).map_err(DevError::stream)?;
                        mapping.push(record, now()).map_err(DevError::stream)?;
                    }
                }
                () = self.stop.cancelled(), if !stopping => stopping = true,
            }
        }
    }

    fn discard(&self, discarded: &Discarded) {
        let function_arn = self.function.name;
        let TableStream { arn: stream_arn, shard_id, .. } = &self.stream;
        let context = DiscardContext { function_arn, stream_arn, shard_id, request_id: "daybook-dev" };
        tracing::error!(function = function_arn, reason = ?discarded.reason, "records discarded");
        self.discarded.push(&discarded.document(&context));
    }

    fn invoke(&self, batch: Batch) -> BoxFuture<'static, (Batch, InvocationOutcome)> {
        self.meter.count_invocation(self.function.name);
        let (function, timeout) = (self.function.clone(), self.timeout);
        Box::pin(async move {
            let outcome = function.invoke(batch.payload(), timeout, None).await;
            (batch, outcome)
        })
    }
}

pub(crate) struct StreamCheckpoint {
    state: StackState,
    pub(crate) reader: String,
    saved: RestartPoint,
}

impl StreamCheckpoint {
    /// The stored point, or the start of the stream.
    pub(crate) fn load(state: StackState, function: &str, event: &str, stream: &TableStream) -> Self {
        let reader = format!("{function} {event} {}", stream.arn);
        let stored = state.checkpoint(&reader).unwrap_or_else(|error| {
            tracing::error!(
                error = with_causes(&error),
                "cannot read the checkpoint, will read the stream from its start"
            );
            None
        });
        let point = stored.and_then(|Checkpoint { sequence_number, is_settled }| {
            let number = SequenceNumber::parse(&sequence_number)?;
            Some(if is_settled { RestartPoint::After(number) } else { RestartPoint::At(number) })
        });
        Self { state, reader, saved: point.unwrap_or(RestartPoint::Start) }
    }

    fn reader(&self, stream: &TableStream) -> Result<StreamReader, DevError> {
        let reader = match &self.saved {
            RestartPoint::Start => stream.reader("TRIM_HORIZON", None),
            RestartPoint::At(number) => stream.reader("AT_SEQUENCE_NUMBER", Some(number.to_string())),
            RestartPoint::After(number) => stream.reader("AFTER_SEQUENCE_NUMBER", Some(number.to_string())),
        };
        reader.map_err(DevError::stream)
    }

    /// Stores a point. If that fails, records are delivered again after a restart.
    fn save(&mut self, point: RestartPoint) {
        let (number, is_settled) = match &point {
            RestartPoint::Start => return,
            RestartPoint::At(number) => (number, false),
            RestartPoint::After(number) => (number, true),
        };
        if point == self.saved {
            return;
        }
        let checkpoint = Checkpoint { sequence_number: number.as_str().to_owned(), is_settled };
        match self.state.save_checkpoint(&self.reader, &checkpoint) {
            Ok(()) => self.saved = point,
            Err(error) => tracing::error!(error = with_causes(&error), "cannot store the checkpoint"),
        }
    }
}

/// The states of all mappings. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct MappingStates {
    states: Arc<Mutex<BTreeMap<MappingName, MappingState>>>,
    /// The functions that are not invoked, as if their mappings were disabled: their records wait in the stream.
    paused: Arc<Mutex<BTreeSet<&'static str>>>,
    clock: LocalClock,
}

/// The function of a mapping, and the mapping's name in the template.
type MappingName = (&'static str, String);

struct MappingState {
    enabled: bool,
    /// `None` before the stream was read.
    shard: Option<ShardState>,
    shard_id: String,
}

#[derive(Clone)]
struct ShardState {
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

    pub(crate) fn add(&self, function: &'static str, mapping: &str, enabled: bool, stream: &TableStream) {
        let state = MappingState { enabled, shard: None, shard_id: stream.shard_id.clone() };
        self.lock().insert((function, mapping.to_owned()), state);
    }

    fn set(&self, function: &'static str, mapping: &str, state: ShardState) {
        if let Some(mapping) = self.lock().get_mut(&(function, mapping.to_owned())) {
            mapping.shard = Some(state);
        }
    }

    pub(crate) fn pause(&self, functions: BTreeSet<&'static str>) {
        *self.paused.lock().unwrap_or_else(PoisonError::into_inner) = functions;
    }

    fn is_paused(&self, function: &str) -> bool {
        self.paused.lock().unwrap_or_else(PoisonError::into_inner).contains(function)
    }

    /// Whether no record waits for a function, except for paused functions.
    pub(crate) fn are_idle(&self) -> bool {
        let states = self.lock();
        let mut running = states.iter().filter(|((function, _), _)| !self.is_paused(function));
        running.all(|(_, state)| state.shard.as_ref().is_none_or(|shard| shard.waiting == 0))
    }

    pub(crate) fn all(&self) -> Vec<ShownMapping> {
        let now = self.clock.since_1970();
        let age = |oldest: Duration| i64::try_from(now.saturating_sub(oldest).as_millis()).unwrap_or(i64::MAX);
        let states = self.lock();
        let mapping = |((function, mapping), state): (&MappingName, &MappingState)| ShownMapping {
            function: (*function).to_owned(),
            mapping: mapping.clone(),
            enabled: state.enabled,
            paused: self.is_paused(function),
            shards: Vec::from_iter(state.shard.as_ref().map(|shard| Shard {
                shard: state.shard_id.clone(),
                waiting: shard.waiting,
                oldest_age_ms: shard.oldest.map(age),
                last_result: shard.last_result.map(str::to_owned),
            })),
        };
        states.iter().map(mapping).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<MappingName, MappingState>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn result_of(outcome: &InvocationOutcome) -> &'static str {
    match outcome {
        InvocationOutcome::Returned(response) if response.contains("itemIdentifier") => "some records are unsettled",
        InvocationOutcome::Returned(_) => "OK",
        InvocationOutcome::FunctionError => "PROBLEM: the function failed",
        InvocationOutcome::NotInvoked => "PROBLEM: the function was not invoked",
    }
}
