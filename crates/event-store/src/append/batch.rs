//! The items of one decision, or of several that follow each other, for one transaction.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::types::{AttributeValue, TransactWriteItem};
use daybook_decider::{AggregateKey, Claim, Need};
use ulid::Ulid;

use super::claims::ClaimWrite;
use crate::limits::{MAX_TRANSACTION, MAX_TRANSACTION_ITEMS, TooLarge};
use crate::settle::DecisionInFlight;

/// Maximum bytes of a batch of several decisions: a partition accepts 1,000 write units per second, and a transaction
/// costs two for each kilobyte. A larger decision is appended alone.
const MAX_SHARED_BYTES: usize = 400_000;

/// Attributes of the metadata, by name.
pub(crate) type Attributes = Vec<(&'static str, AttributeValue)>;

/// The items of one decision, or of several that follow each other, without the item of the metadata. A transaction has
/// only one such item, which is created when the transaction is sent.
#[derive(Debug, Default)]
pub(crate) struct AppendBatch {
    /// The attributes of the metadata that only the first append of an aggregate sets.
    pub(super) created: Attributes,
    /// The attributes of the metadata that every append sets; empty without events.
    pub(super) changed: Attributes,
    /// The number and id of the first event; `None` without events.
    pub(super) first_event: Option<(u64, Ulid)>,
    pub(super) rows: Vec<TransactWriteItem>,
    /// The deadlines to set and to drop, by partition key and sort key. Of several changes of one, the last counts.
    pub(super) deadlines: BTreeMap<(String, String), TransactWriteItem>,
    pub(super) claims: Vec<ClaimWrite>,
    /// The check of the row that must not change before the append.
    pub(super) required: Option<TransactWriteItem>,
    /// The responses to store, each with its idempotency key.
    pub(super) responses: Vec<(String, TransactWriteItem)>,
    /// For each other aggregate and each claim that the decision involves, the item that changes or checks it. Their events and
    /// messages are in `rows`.
    pub(super) others: Vec<(Need, TransactWriteItem)>,
    pub(super) first_event_of_other: Option<FirstEvent>,
    pub(super) bytes: usize,
    /// The first decision. It is the oldest one, so the others need not be in flight. The default for an import.
    pub(crate) in_flight: DecisionInFlight,
}

/// The first event of an append. If the append is stored, an event with this number has this id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FirstEvent {
    /// The aggregate, if it is not the one that the request is about.
    pub(crate) of: Option<AggregateKey>,
    pub(crate) number: u64,
    pub(crate) id: Ulid,
}

impl AppendBatch {
    /// The event that shows whether the append is stored; `None` without events.
    pub(crate) fn first_event(&self) -> Option<FirstEvent> {
        let own = self.first_event.map(|(number, id)| FirstEvent { of: None, number, id });
        own.or_else(|| self.first_event_of_other.clone())
    }

    pub(crate) fn responses(&self) -> usize {
        self.responses.len()
    }

    pub(crate) fn claims(&self) -> Vec<Claim> {
        self.claims.iter().map(|change| change.claim.clone()).collect()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.items() >= MAX_TRANSACTION_ITEMS
    }

    /// Whether the next decision fits the transaction. An item may occur only once in a transaction, so two decisions
    /// with the same idempotency key, or with changes of the same claim, do not fit.
    pub(crate) fn has_space_for(&self, next: &Self) -> bool {
        let is_used = |key: &String| self.responses.iter().any(|(used, _)| used == key);
        let is_changed = |next: &ClaimWrite| self.claims.iter().any(|change| change.claim == next.claim);
        // Both numbers include the metadata.
        self.items() + next.items() - 1 <= MAX_TRANSACTION_ITEMS
            && self.bytes + next.bytes <= MAX_SHARED_BYTES
            && !next.responses.iter().any(|(key, _)| is_used(key))
            && !next.claims.iter().any(is_changed)
    }

    /// Adds the check of a row, with this partition key and sort key, that must not change before the append. An append that
    /// changes it itself has no check, because an item may occur only once in a transaction: it contains the aggregate of the
    /// row, at the version that was decided on.
    pub(crate) fn require(&mut self, row: &(String, String), check: TransactWriteItem) -> Result<(), TooLarge> {
        self.required = (!self.deadlines.contains_key(row)).then_some(check);
        self.check_size()
    }

    pub(super) fn check_size(&self) -> Result<(), TooLarge> {
        match (self.items(), self.bytes) {
            (items, _) if items > MAX_TRANSACTION_ITEMS => Err(TooLarge::Items { items }),
            (_, bytes) if bytes > MAX_TRANSACTION => Err(TooLarge::Transaction { bytes }),
            _ => Ok(()),
        }
    }

    pub(crate) fn add(&mut self, next: Self) {
        if next.first_event.is_some() {
            self.changed = next.changed;
        }
        if self.first_event.is_none() {
            self.created = next.created;
            self.first_event = next.first_event;
        }
        self.rows.extend(next.rows);
        self.deadlines.extend(next.deadlines);
        self.claims.extend(next.claims);
        self.responses.extend(next.responses);
        self.bytes += next.bytes;
    }

    /// The number of items, with the metadata.
    pub(super) fn items(&self) -> usize {
        let rows = self.rows.len() + self.deadlines.len() + self.claims.len() + self.responses.len();
        1 + usize::from(self.required.is_some()) + self.others.len() + rows
    }
}
