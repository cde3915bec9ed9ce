//! The transactions of an import.

use std::time::Duration;

use daybook_decider::{ClaimChanges, DeadlineChanges, Folded, Model, OutboxMessage, RecordedEvent};
use daybook_event_store::internal::{Backoff, ImportWrite, NewEvents, event_item};
use daybook_event_store::limits::{MAX_ITEM, MAX_TRANSACTION, MAX_TRANSACTION_ITEMS, TooLarge};
use daybook_event_store::{AppendError, EventStore, StoreError};
use daybook_table::{AggregateKey, EventItem, Metadata, keys};
use tokio::time::Instant;

use crate::handle::{Admin, panicked};

/// The time for which a transaction is sent again while DynamoDB throttles or fails.
const PATIENCE: Duration = Duration::from_secs(30);

/// Maximum bytes of the metadata: type and id, each in the key and as an attribute, two times and some numbers.
const MAX_METADATA: usize = 1024;

pub struct ImportBatch<'a> {
    store: &'a EventStore,
    model: &'a dyn Model,
    key: &'a AggregateKey,
    options: ImportWrite,
    before: u64,
    events: Vec<RecordedEvent>,
    messages: Vec<OutboxMessage>,
    bytes: usize,
}

impl<'a> Admin<'a> {
    pub async fn metadata(&self, key: &AggregateKey) -> Result<Option<Metadata>, StoreError> {
        let row = self.store.row("read an aggregate's metadata", key, keys::METADATA.to_owned()).await?;
        let corrupt = |error: serde_dynamo::Error| StoreError::Corrupt {
            item: format!("the metadata of {key}"),
            source: error.into(),
        };
        row.map(serde_dynamo::from_item).transpose().map_err(corrupt)
    }

    /// Whether the messages of an event were published: they are not if it was imported without them.
    pub async fn is_published(&self, key: &AggregateKey, seq_num: u64) -> Result<bool, StoreError> {
        Ok(event_row(self.store, key, seq_num).await?.is_none_or(|row| row.not_published != Some(true)))
    }

    /// A batch of events to import after version `before` of an aggregate.
    pub fn import(
        &self,
        model: &'a dyn Model,
        key: &'a AggregateKey,
        before: u64,
        options: ImportWrite,
    ) -> ImportBatch<'a> {
        let (store, bytes) = (self.store, MAX_METADATA);
        ImportBatch { store, model, key, options, before, events: Vec::new(), messages: Vec::new(), bytes }
    }
}

impl ImportBatch<'_> {
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// The version of the aggregate before the batch: the number of events that are known to be in the table.
    pub fn before(&self) -> u64 {
        self.before
    }

    /// Adds the next event with its messages. Returns `false` if the transaction has no space for them.
    pub fn add(&mut self, event: &RecordedEvent, messages: &[OutboxMessage]) -> Result<bool, AppendError> {
        let sizes = self.store.imported_sizes(self.model, self.key, event, messages, self.options)?;
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
    pub async fn send(&mut self, after: &Folded) -> Result<(), AppendError> {
        let mut backoff = Backoff::until(Instant::now() + PATIENCE);
        while let Err(error) = self.send_once(after).await {
            let may_help = match &error {
                AppendError::NotWritten(_) | AppendError::Busy => true,
                AppendError::Unknown(_) | AppendError::Conflict { .. } if self.is_written().await? => break,
                AppendError::Unknown(_) => true,
                AppendError::Conflict { .. }
                | AppendError::Raced(_)
                | AppendError::KeysUsed(_)
                | AppendError::ClaimTaken { .. }
                | AppendError::NotReleased(_)
                | AppendError::TooLarge(_)
                | AppendError::RowChanged
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
        let (claims, deadlines) = (&ClaimChanges::default(), &DeadlineChanges::default());
        let forgets = self.model.is_forgotten(after).map_err(|panic| panicked(self.key, panic))?;
        let new = NewEvents { events: &self.events, messages: &self.messages, claims, deadlines, forgets, after };
        let send_until = Instant::now() + PATIENCE;
        self.store.import(self.model, self.key, self.before, new, self.options, send_until).await
    }

    /// Whether the last event of the batch is in the table, and so are all its rows.
    async fn is_written(&self) -> Result<bool, StoreError> {
        let Some(last) = self.events.last() else { return Ok(true) };
        let row = event_row(self.store, self.key, last.seq_num).await?;
        let mut event = row.map(EventItem::into_event).transpose()?;
        self.store.open_events(event.iter_mut().map(|event| (self.key, event))).await?;
        Ok(event.as_ref() == Some(last))
    }
}

async fn event_row(store: &EventStore, key: &AggregateKey, seq_num: u64) -> Result<Option<EventItem>, StoreError> {
    store.row("read an event", key, keys::event_sk(seq_num)).await?.map(event_item).transpose()
}
