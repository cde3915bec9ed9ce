//! The accepted entries and messages, and the recorded calls.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use daybook_event_pattern::EventPattern;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::clock::LocalClock;
use crate::json_protocol::CallError;
use crate::messaging::faults::{CallFault, Faults, FunctionFault, KillFault};
use crate::messaging::sqs::queues::{Counts, DEAD_LETTER_QUEUE_SUFFIX, QueueMessage, Queues, name_of};
use crate::state::{BusQuery, DataFileError, Journal, StackState};

/// The event buses and queues of an account. A clone is the same account.
#[derive(Clone)]
pub struct Bus(Arc<Mutex<State>>);

pub(crate) struct State {
    /// Where accepted entries and messages are stored.
    pub(crate) stored: StackState,
    pub(crate) put_events_calls: Vec<PutEventsCall>,
    /// The names of the event buses, besides `default`.
    event_buses: BTreeSet<String>,
    /// By event bus and name.
    pub(crate) rules: BTreeMap<(String, String), EventRule>,
    pub(crate) queues: Queues,
    work_queues: BTreeSet<String>,
    pub(crate) faults: Faults,
    subscribers: Vec<UnboundedSender<Delivered>>,
    ids: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Delivered {
    /// The id that the bus assigned. An entry that is sent twice gets two ids.
    pub event_id: String,
    /// The name in the entry, or `default` if it has none.
    pub event_bus_name: String,
    pub source: String,
    pub detail_type: String,
    /// `Detail`, the unchanged JSON text.
    pub detail: String,
    /// `Time`, RFC 3339 with milliseconds, when the entry has one.
    pub time: Option<String>,
    pub resources: Vec<String>,
    pub trace_header: Option<String>,
    /// When the bus accepted it, in milliseconds since 1970.
    pub accepted_at: Option<u64>,
}

pub(crate) struct EventRule {
    pub(crate) pattern: EventPattern,
    /// The ARNs of queues, by the id of the target.
    pub(crate) targets: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WaitingMessage {
    pub message: QueueMessage,
    /// When it was sent to the queue, in milliseconds since 1970.
    pub sent_at: u64,
    pub receives: u32,
}

/// A call of `PutEvents` with a readable body, whatever its result.
#[derive(Clone, Debug, PartialEq)]
pub struct PutEventsCall {
    pub entries: usize,
    /// Their size by EventBridge's rule.
    pub bytes: usize,
    /// The result of each entry, in their order; empty if the whole call failed.
    pub results: Vec<PutEventsResultEntry>,
}

/// The result of an entry: an event id, or an error code and its text.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct PutEventsResultEntry {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
}

impl PutEventsResultEntry {
    pub(crate) fn accepted(event_id: String) -> Self {
        Self { event_id: Some(event_id), ..Self::default() }
    }

    pub(crate) fn failed(code: &str, message: &str) -> Self {
        Self { event_id: None, error_code: Some(code.to_owned()), error_message: Some(message.to_owned()) }
    }
}

impl Bus {
    /// An account in memory with the event bus `default`, without queues and faults.
    pub fn in_memory() -> Self {
        let stored = StackState::in_memory().expect("SQLite opens a database in memory");
        Self::new(stored, LocalClock::default()).expect("it is empty")
    }

    /// An account with this clock that goes on with the entries and messages that are stored. Messages that were delayed, or received
    /// and not deleted, are visible. Injected faults and recorded calls are not stored.
    pub fn new(stored: StackState, clock: LocalClock) -> Result<Self, DataFileError> {
        let deleted: HashSet<String> = stored.entries(Journal::DELETED_MESSAGES)?.into_iter().collect();
        let mut queues = Queues::new(clock);
        let messages = stored.entries::<QueueMessage>(Journal::QUEUE)?.into_iter();
        messages
            .filter(|message| !deleted.contains(&message.message_id))
            .for_each(|message| queues.send(message, Duration::ZERO));
        Ok(Self(Arc::new(Mutex::new(State {
            stored,
            put_events_calls: Vec::new(),
            event_buses: BTreeSet::new(),
            rules: BTreeMap::new(),
            queues,
            work_queues: BTreeSet::new(),
            faults: Faults::default(),
            subscribers: Vec::new(),
            ids: 0,
        }))))
    }

    pub fn with(event_bus: &str, queue: &str) -> Self {
        let this = Self::in_memory();
        this.create_event_bus(event_bus);
        this.create_queue(queue);
        this
    }

    /// Creates an event bus, unless it exists, by its name or ARN.
    pub fn create_event_bus(&self, name: &str) {
        self.state().event_buses.insert(event_bus_name(name).to_owned());
    }

    /// Deletes an event bus, by its name or ARN. Entries for it are accepted and dropped.
    pub fn delete_event_bus(&self, name: &str) {
        self.state().event_buses.remove(event_bus_name(name));
    }

    /// Creates a queue, unless it exists, by its name or URL.
    pub fn create_queue(&self, name: &str) {
        self.state().queues.create(name);
    }

    /// Deletes a queue with its messages, by its name or URL.
    pub fn delete_queue(&self, name: &str) {
        self.state().queues.remove(name);
    }

    /// Creates a queue whose messages are not dead-letter messages, unless it exists, by its name or URL.
    pub fn create_work_queue(&self, name: &str) {
        let mut state = self.state();
        state.queues.create(name);
        state.work_queues.insert(name_of(name).to_owned());
    }

    /// Every entry that reached an event bus, in order of arrival.
    pub fn delivered(&self) -> Vec<Delivered> {
        let all = BusQuery { positions: 1..usize::MAX, key: None };
        let entries = self.state().stored.entries_of_bus(&all, usize::MAX);
        entries.inspect_err(unreadable).unwrap_or_default().into_iter().map(|(_, entry)| entry).collect()
    }

    /// Every message that a queue ever accepted, except for work, in order of arrival.
    pub fn dead_letters(&self) -> Vec<QueueMessage> {
        let state = self.state();
        let accepted: Vec<QueueMessage> =
            state.stored.entries(Journal::QUEUE).inspect_err(unreadable).unwrap_or_default();
        accepted.into_iter().filter(|message| !state.is_work(&message.queue_url)).collect()
    }

    /// The messages that are in dead-letter queues now, also in those of rules, in order of arrival.
    pub fn waiting_dead_letters(&self) -> Vec<WaitingMessage> {
        let state = self.state();
        let is_dead_letter = |queue: &str| !state.is_work(queue) || name_of(queue).ends_with(DEAD_LETTER_QUEUE_SUFFIX);
        let queued = state.queues.queued.iter().filter(|queued| is_dead_letter(&queued.message.queue_url));
        let waiting = queued.map(|queued| WaitingMessage {
            message: queued.message.clone(),
            sent_at: queued.sent,
            receives: queued.receives,
        });
        waiting.collect()
    }

    /// Deletes a message by its id, without receiving it. Returns whether it was in a queue.
    pub fn delete_message(&self, message_id: &str) -> bool {
        let mut state = self.state();
        if !state.queues.remove_message(message_id) {
            return false;
        }
        if let Err(error) = state.stored.append(Journal::DELETED_MESSAGES, &message_id) {
            tracing::error!(error = &error as &dyn Error, "cannot store that a message was deleted");
        }
        true
    }

    /// The names of the queues, each with its numbers of visible and of hidden messages.
    pub fn queue_counts(&self) -> Vec<(String, usize, usize)> {
        let state = self.state();
        let counts = |name: &String| {
            let (visible, hidden) = state.message_counts(name);
            (name.clone(), visible, hidden)
        };
        state.queues.names.iter().map(counts).collect()
    }

    /// Every message that is in a queue, received or not, in order of arrival.
    pub fn queued(&self) -> Vec<QueueMessage> {
        self.state().queues.queued.iter().map(|queued| queued.message.clone()).collect()
    }

    /// Every call of `PutEvents`, in order of arrival.
    pub fn put_events_calls(&self) -> Vec<PutEventsCall> {
        self.state().put_events_calls.clone()
    }

    /// Replaces all faults, used up or not.
    pub fn set_faults(&self, faults: Faults) {
        self.state().faults = faults;
    }

    /// Takes the fault of the next call from a script, and waits as long as it requires.
    pub(crate) async fn next_fault(&self, script: fn(&mut Faults) -> &mut Vec<CallFault>) -> CallFault {
        let fault = CallFault::next(script(&mut self.state().faults));
        tokio::time::sleep(Duration::from_millis(fault.delay_ms)).await;
        fault
    }

    /// The same. Fails the call if the fault requires this before it is executed.
    pub(crate) async fn begin_call(
        &self,
        script: fn(&mut Faults) -> &mut Vec<CallFault>,
    ) -> Result<CallFault, CallError> {
        let fault = self.next_fault(script).await;
        fault.fail_before()?;
        Ok(fault)
    }

    pub fn invocation_fault(&self, function: &str, event: &str) -> Option<FunctionFault> {
        FunctionFault::next(&mut self.state().faults.invocations, function, event)
    }

    /// The time after which the next invocation of the projector or the reactor is killed; `None` if it is not.
    pub fn kill_fault(&self, function: &str) -> Option<Duration> {
        let faults = &mut self.state().faults;
        KillFault::next(if function == "projector" { &mut faults.projector } else { &mut faults.reactor })
    }

    /// Lets receivers look for messages whose delay ended with a move of the clock.
    pub fn clock_moved(&self) {
        self.state().queues.changed.notify_waiters();
    }

    /// The numbers of visible and of hidden messages of a queue.
    pub fn message_counts(&self, queue: &str) -> (usize, usize) {
        self.state().message_counts(queue)
    }

    /// Returns a receiver of each entry that is accepted from now on. A slow receiver loses none.
    pub fn subscribe(&self) -> UnboundedReceiver<Delivered> {
        let (sender, receiver) = unbounded_channel();
        self.state().subscribers.push(sender);
        receiver
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn unreadable(error: &DataFileError) {
    tracing::error!(error = error as &dyn Error, "the stored state cannot be read");
}

pub(crate) fn event_bus_name(name_or_arn: &str) -> &str {
    name_or_arn.split_once(":event-bus/").map_or(name_or_arn, |(_, name)| name)
}

impl State {
    /// Whether the messages of a queue are not dead-letter messages. A rule sends its events to the ARN of a queue.
    fn is_work(&self, queue_url: &str) -> bool {
        queue_url.starts_with("arn:") || self.work_queues.contains(name_of(queue_url))
    }

    pub(crate) fn has_event_bus(&self, name: &str) -> bool {
        let name = event_bus_name(name);
        name == "default" || self.event_buses.contains(name)
    }

    pub(crate) fn deliver(&mut self, entry: Delivered) -> Result<(), DataFileError> {
        self.stored.append_to_bus(&entry)?;
        self.send_to_targets(&entry)?;
        self.subscribers.retain(|subscriber| subscriber.send(entry.clone()).is_ok());
        Ok(())
    }

    pub(crate) fn send(&mut self, message: QueueMessage, delay: Duration) -> Result<(), DataFileError> {
        self.stored.append(Journal::QUEUE, &message)?;
        self.queues.send(message, delay);
        Ok(())
    }

    fn message_counts(&self, queue: &str) -> (usize, usize) {
        let Counts { visible, hidden, delayed } = self.queues.counts(queue);
        (visible, hidden + delayed)
    }

    /// Moves the messages of a queue that were received too often to its dead-letter queue. Unlike in SQS, they get new
    /// ids there, because deleted messages are known by their ids.
    pub(crate) fn redrive(&mut self, queue_url: &str) -> Result<(), DataFileError> {
        for (message, dead_letter_queue) in self.queues.take_exhausted(queue_url) {
            let (message_id, deleted) = (self.new_id(), message.message_id.clone());
            self.send(QueueMessage { message_id, queue_url: dead_letter_queue, ..message }, Duration::ZERO)?;
            self.stored.append(Journal::DELETED_MESSAGES, &deleted)?;
        }
        Ok(())
    }

    pub(crate) fn delete(&mut self, queue_url: &str, handle: &str) -> Result<(), CallError> {
        let deleted = self.queues.delete(queue_url, handle)?;
        deleted.map_or(Ok(()), |message| Ok(self.stored.append(Journal::DELETED_MESSAGES, &message.message_id)?))
    }

    /// A new id in the form of a UUID. Ids are counted up, so that two runs of a test get the same ones. Runs over the
    /// same file get different ones.
    pub(crate) fn new_id(&mut self) -> String {
        self.ids += 1;
        format!("{:08x}-0000-4000-8000-{:012x}", self.stored.session, self.ids)
    }
}
