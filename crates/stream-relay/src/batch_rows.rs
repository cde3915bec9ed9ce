//! The outbox rows in the records of a batch, for operators who send its messages themselves.

use std::collections::BTreeSet;

use daybook_stream_batch::StreamBatch;
use daybook_table::OutboxItem;

use crate::message::identity;
use crate::record::{self, Content};

/// The contents of a batch, as the relay reads them.
#[derive(Debug, Default)]
pub struct BatchRows {
    /// The new outbox rows, each once, in the order of their records.
    pub rows: Vec<OutboxItem>,
    /// Why records that may be new outbox rows cannot be read.
    pub unreadable: Vec<String>,
    /// The number of records of other items, and of changes of rows.
    pub others: usize,
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
                Content::Moved(..) | Content::SomethingElse => this.others += 1,
                Content::Unreadable(unreadable) => this.unreadable.push(unreadable.reason),
            }
        }
        this
    }
}
