//! The import of events that exist already, from another table or another system.
//!
//! Unlike an append, an import writes events with times and ids of the past, so a reader of a feed who has passed these
//! ids does not see them.

use std::time::Duration;

use daybook_decider::{Decided, Folded, Model, OutboxMessage, RecordedEvent};
use daybook_table::{AggregateKey, Metadata, keys};
use jiff::Timestamp;
use serde::Serialize;
use tokio::time::Instant;

use super::handle::Admin;
use crate::append::{AppendError, Origin};
use crate::backoff::Backoff;
use crate::checksum::seal;
use crate::error::{Cause, StoreError};
use crate::event_stream::EventStream;
use crate::item::event_item;
use crate::limits::{MAX_ITEM, MAX_TRANSACTION, MAX_TRANSACTION_ITEMS, TooLarge, item_size};

/// The time for which a transaction is sent again while DynamoDB throttles or fails.
const PATIENCE: Duration = Duration::from_secs(30);

/// Maximum bytes of the metadata: type and id, each in the key and as an attribute, two times and some numbers.
const MAX_METADATA: usize = 1024;

/// Whether the messages of imported events are published, and the time of the import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImportOptions {
    /// Whether outbox rows are written, which the relay then sends.
    pub publish: bool,
    /// The time from which outbox rows expire.
    pub now: Timestamp,
}

/// The next transaction of an import.
pub struct ImportBatch<'a> {
    stream: EventStream<'a>,
    options: ImportOptions,
    /// The version of the aggregate before the batch.
    before: u64,
    events: Vec<RecordedEvent>,
    messages: Vec<OutboxMessage>,
    bytes: usize,
}

impl<'a> Admin<'a> {
    /// The metadata of an aggregate; `None` when it does not exist.
    ///
    /// # Errors
    ///
    /// See [`StoreError`].
    pub async fn metadata(&self, key: &AggregateKey) -> Result<Option<Metadata>, StoreError> {
        let output = self.store.row(key, keys::METADATA.to_owned()).send().await;
        let row = output.map_err(|error| StoreError::of_call("read an aggregate's metadata", error))?.item;
        let corrupt = |error: serde_dynamo::Error| StoreError::Corrupt {
            item: format!("the metadata of {key}"),
            source: error.into(),
        };
        row.map(serde_dynamo::from_item).transpose().map_err(corrupt)
    }

    /// A batch of events to import after version `before` of an aggregate.
    pub fn import(
        &self,
        model: &'a dyn Model,
        key: &'a AggregateKey,
        before: u64,
        options: ImportOptions,
    ) -> ImportBatch<'a> {
        let stream = self.store.stream(model, key);
        ImportBatch { stream, options, before, events: Vec::new(), messages: Vec::new(), bytes: MAX_METADATA }
    }
}

impl ImportBatch<'_> {
    /// Whether the batch has no events.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// The version of the aggregate before the batch: the number of events that are known to be in the table.
    pub fn before(&self) -> u64 {
        self.before
    }

    /// Adds the next event with its messages. Returns `false` if the transaction has no space for them.
    ///
    /// # Errors
    ///
    /// When the event and its messages do not fit any transaction.
    pub fn add(&mut self, event: &RecordedEvent, messages: &[OutboxMessage]) -> Result<bool, AppendError> {
        // The end of the append is not known yet; no number takes more bytes than this one.
        let mut sizes = vec![self.size(&self.stream.event_row(event, keys::MAX_SEQ_NUM))?];
        for message in messages {
            sizes.push(self.size(&self.stream.outbox_row(message, self.origin()))?);
        }
        if let Some(&bytes) = sizes.iter().find(|&&bytes| bytes > MAX_ITEM) {
            return Err(TooLarge::Item { bytes }.into());
        }
        let items = 1 + self.events.len() + self.messages.len() + sizes.len();
        let bytes = self.bytes + sizes.iter().sum::<usize>();
        if items <= MAX_TRANSACTION_ITEMS && bytes <= MAX_TRANSACTION {
            self.events.push(event.clone());
            self.messages.extend_from_slice(messages);
            self.bytes = bytes;
            return Ok(true);
        }
        match (self.is_empty(), items) {
            (false, _) => Ok(false),
            (true, items) if items > MAX_TRANSACTION_ITEMS => Err(TooLarge::Items { items }.into()),
            (true, _) => Err(TooLarge::Transaction { bytes }.into()),
        }
    }

    /// Writes the batch in one transaction, if none of its rows exists and the aggregate is at the version before the
    /// batch. `after` is the aggregate after the batch. The batch is then empty, and follows the events that were
    /// written. While DynamoDB throttles or fails, the transaction is sent again: its condition keeps it from being
    /// stored twice.
    ///
    /// # Errors
    ///
    /// See [`AppendError`]. The batch is unchanged.
    pub async fn send(&mut self, after: &Folded) -> Result<(), AppendError> {
        let mut backoff = Backoff::until(Instant::now() + PATIENCE);
        while let Err(error) = self.send_once(after).await {
            let may_help = match &error {
                AppendError::NotWritten(_) | AppendError::Busy => true,
                AppendError::Unknown(_) | AppendError::Conflict { .. } if self.is_written().await? => break,
                AppendError::Unknown(_) => true,
                AppendError::Conflict { .. }
                | AppendError::KeyUsed(_)
                | AppendError::TooLarge(_)
                | AppendError::Store(_) => false,
            };
            if !may_help || !backoff.wait().await {
                return Err(error);
            }
        }
        self.pass(after.version());
        Ok(())
    }

    /// Empties the batch without writing it, for a check that changes nothing. The next batch follows `version`.
    pub fn pass(&mut self, version: u64) {
        self.before = version;
        self.events.clear();
        self.messages.clear();
        self.bytes = MAX_METADATA;
    }

    async fn send_once(&self, after: &Folded) -> Result<(), AppendError> {
        let (events, messages) = (self.events.clone(), self.messages.clone());
        let decided = Decided { events, messages, after: after.clone(), rejection: None };
        let batch = self.stream.batch(&decided, None, self.origin())?;
        Ok(self.stream.call(self.before, batch, Instant::now() + PATIENCE).send().await?)
    }

    /// Whether the last event of the batch is in the table, and so are all its rows.
    async fn is_written(&self) -> Result<bool, StoreError> {
        let Some(last) = self.events.last() else { return Ok(true) };
        let row = self.stream.store.row(self.stream.key, keys::event_sk(last.seq_num)).send().await;
        let row = row.map_err(|error| StoreError::of_call("read an event", error))?.item;
        Ok(row.map(|row| Ok::<_, StoreError>(event_item(row)?.into_event()?)).transpose()?.as_ref() == Some(last))
    }

    fn origin(&self) -> Origin {
        let ImportOptions { publish, now } = self.options;
        Origin::Import { now, publish }
    }

    fn size(&self, row: &impl Serialize) -> Result<usize, StoreError> {
        let item = serde_dynamo::to_item(row).map_err(|error| self.stream.corrupt(Cause::from(error)))?;
        Ok(item_size(&seal(item)))
    }
}
