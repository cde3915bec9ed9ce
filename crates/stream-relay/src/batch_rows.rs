//! The outbox rows and the changed aggregates in the records of a batch, for operators who send them themselves.

use std::collections::{BTreeMap, BTreeSet};

use daybook_stream_batch::StreamBatch;
use daybook_table::{AggregateKey, OutboxItem};

use crate::message::identity;
use crate::record::{self, Content};

/// The contents of a batch, as the relay reads them.
#[derive(Debug, Default)]
pub struct BatchRows {
    /// The new outbox rows, each once, in the order of their records.
    pub rows: Vec<OutboxItem>,
    /// Why records that may be new outbox rows cannot be read.
    pub unreadable: Vec<String>,
    /// The aggregates with new events, each with the number of the last one. Only with read models.
    pub changed: BTreeMap<AggregateKey, u64>,
}

impl BatchRows {
    /// Reads the records of a batch.
    pub fn of(batch: &StreamBatch) -> Self {
        let (mut this, mut known) = (Self::default(), BTreeSet::new());
        for raw in &batch.records {
            match record::read(raw).1 {
                Content::Outbox(row) => {
                    let item = row.item;
                    if known.insert(identity(&item)) {
                        this.rows.push(item);
                    }
                }
                Content::Moved(aggregate, last) => {
                    let known = this.changed.entry(aggregate).or_default();
                    *known = last.max(*known);
                }
                Content::SomethingElse => {}
                Content::Unreadable(unreadable) => this.unreadable.push(unreadable.reason),
            }
        }
        this
    }
}
