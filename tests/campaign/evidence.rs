//! What a function instance has learned in all of its invocations. It decides with it whether a message or the bus is the
//! cause of a failure, and sends nothing again that a service accepted.

use std::collections::{BTreeMap, BTreeSet};

use tokio::time::Instant;

/// From this number of rejected messages on, the relay treats the bus as the cause.
const SEVERAL: usize = 3;

/// The failures of an instance.
#[derive(Debug, Default)]
pub(crate) struct Evidence {
    /// The messages that failed in an invocation in which the bus accepted others.
    failed_beside_others: BTreeSet<usize>,
    /// The messages that the bus rejected since it last accepted one, by code.
    rejected: BTreeMap<String, BTreeSet<usize>>,
    last_accepted: Option<Instant>,
    /// The event ids of the records whose messages a service accepted.
    settled: BTreeSet<String>,
    /// The attempts to send the message of a record, by event id.
    attempts: BTreeMap<String, Attempts>,
}

/// The attempts to send a message until now.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attempts {
    pub(crate) first: Option<Instant>,
    pub(crate) count: usize,
    /// The code with which it was sent to the dead-letter queue, which has not accepted it.
    pub(crate) dead_lettered: Option<String>,
}

impl Evidence {
    pub(crate) fn accepted(&mut self, index: usize) {
        self.last_accepted = Some(Instant::now());
        self.rejected.clear();
        self.failed_beside_others.remove(&index);
    }

    pub(crate) fn rejected(&mut self, index: usize, code: &str) {
        self.rejected.entry(code.to_owned()).or_default().insert(index);
    }

    pub(crate) fn failed_beside_others(&mut self, index: usize) {
        self.failed_beside_others.insert(index);
    }

    /// Whether a message failed in an earlier invocation in which the bus accepted others.
    pub(crate) fn has_failed_beside_others(&self, index: usize) -> bool {
        self.failed_beside_others.contains(&index)
    }

    /// Whether the bus has accepted a message since this time.
    pub(crate) fn has_accepted_since(&self, time: Instant) -> bool {
        self.last_accepted.is_some_and(|at| at >= time)
    }

    pub(crate) fn settled(&mut self, event_id: &str) {
        self.settled.insert(event_id.to_owned());
    }

    /// Whether a service has accepted the message of this record.
    pub(crate) fn has_settled(&self, event_id: &str) -> bool {
        self.settled.contains(event_id)
    }

    pub(crate) fn remember(&mut self, event_id: String, attempts: Attempts) {
        self.attempts.insert(event_id, attempts);
    }

    pub(crate) fn attempts(&self, event_id: &str) -> Attempts {
        self.attempts.get(event_id).cloned().unwrap_or_default()
    }

    /// Whether the bus has rejected so many messages since it last accepted one that the bus is the cause.
    pub(crate) fn is_against_the_bus(&self) -> bool {
        self.rejected.values().any(|messages| messages.len() >= SEVERAL)
    }
}
