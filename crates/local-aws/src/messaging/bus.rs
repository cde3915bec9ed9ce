//! What arrived.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::messaging::faults::Faults;
use crate::messaging::queue::Queues;

/// An event bus and its queues. A clone is the same bus.
#[derive(Clone, Default)]
pub struct Bus(Arc<Mutex<State>>);

#[derive(Default)]
pub(crate) struct State {
    pub(crate) delivered: Vec<Delivered>,
    pub(crate) dead_letters: Vec<DeadLetter>,
    pub(crate) put_events_calls: Vec<PutEventsCall>,
    pub(crate) queues: Queues,
    pub(crate) faults: Faults,
    subscribers: Vec<UnboundedSender<Delivered>>,
    ids: u64,
}

/// An entry that the bus took.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Delivered {
    /// The id that the bus gave it. An entry that is sent twice gets two.
    pub event_id: String,
    /// As named in the entry; `default` when it names none.
    pub event_bus_name: String,
    /// `Source`.
    pub source: String,
    /// `DetailType`.
    pub detail_type: String,
    /// `Detail`, the JSON text as it was sent.
    pub detail: String,
    /// `Time`, RFC 3339 with milliseconds, when the entry has one.
    pub time: Option<String>,
    /// `Resources`.
    pub resources: Vec<String>,
    /// `TraceHeader`.
    pub trace_header: Option<String>,
}

/// A message that a queue took.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetter {
    /// The id that the queue gave it.
    pub message_id: String,
    /// The queue.
    pub queue_url: String,
    /// The body.
    pub body: String,
    /// The message attributes that hold text.
    pub attributes: BTreeMap<String, String>,
}

/// A call of `PutEvents` that had a target and a readable body, however it ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PutEventsCall {
    /// The entries that it held.
    pub entries: usize,
    /// Their size by EventBridge's rule.
    pub bytes: usize,
    /// What each entry came to, in the order of the entries; empty when the call was refused whole.
    pub results: Vec<ResultEntry>,
}

/// What an entry came to: an event id, or an error code and its text.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct ResultEntry {
    /// The id of a delivered entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_id: Option<String>,
    /// Why it was not delivered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    /// The same in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
}

impl Bus {
    /// An empty bus without faults.
    pub fn new() -> Self {
        Self::default()
    }

    /// The endpoint of both services: `POST /`, told apart by `X-Amz-Target`.
    pub fn router(&self) -> axum::Router {
        crate::messaging::wire::router(self.clone())
    }

    /// Every entry that was taken, in order of arrival.
    pub fn delivered(&self) -> Vec<Delivered> {
        self.state().delivered.clone()
    }

    /// Every message that a queue ever took, in order of arrival.
    pub fn dead_letters(&self) -> Vec<DeadLetter> {
        self.state().dead_letters.clone()
    }

    /// Every message that is in a queue, received or not, in order of arrival.
    pub fn queued(&self) -> Vec<DeadLetter> {
        self.state().queues.letters()
    }

    /// Every call of `PutEvents`, in order of arrival.
    pub fn put_events_calls(&self) -> Vec<PutEventsCall> {
        self.state().put_events_calls.clone()
    }

    /// Replaces all faults, those that are not used up too.
    pub fn set_faults(&self, faults: Faults) {
        self.state().faults = faults;
    }

    /// Receives each entry from now on as it is taken. None is lost, however slow the receiver.
    pub fn subscribe(&self) -> UnboundedReceiver<Delivered> {
        let (sender, receiver) = unbounded_channel();
        self.state().subscribers.push(sender);
        receiver
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    pub(crate) fn deliver(&mut self, entry: Delivered) {
        self.subscribers.retain(|subscriber| subscriber.send(entry.clone()).is_ok());
        self.delivered.push(entry);
    }

    /// A new id in the form of a UUID, counted up so that a test run repeats itself.
    pub(crate) fn new_id(&mut self) -> String {
        self.ids += 1;
        format!("00000000-0000-4000-8000-{:012x}", self.ids)
    }
}
