//! What a function instance has learned about the bus in all of its invocations: an instance decides with it whether a
//! message or the bus is the cause of a failure.

use std::collections::{BTreeMap, BTreeSet};

/// From this number of rejected messages on, the relay treats the bus as the cause.
const SEVERAL: usize = 3;

/// The failures of an instance.
#[derive(Debug, Default)]
pub(crate) struct Evidence {
    /// The messages that failed in an invocation in which the bus accepted others.
    failed_beside_others: BTreeSet<usize>,
    /// The messages that the bus rejected since it last accepted one, by code.
    rejected: BTreeMap<String, BTreeSet<usize>>,
}

impl Evidence {
    pub(crate) fn accepted(&mut self, index: usize) {
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

    /// Whether the bus has rejected so many messages since it last accepted one that the bus is the cause.
    pub(crate) fn is_against_the_bus(&self) -> bool {
        self.rejected.values().any(|messages| messages.len() >= SEVERAL)
    }
}
