//! The fold of stored events, page by page.

use std::time::Duration;

use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use daybook_decider::{Folded, RecordedEvent};
use daybook_table::keys;
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::error::StoreError;
use crate::event_stream::EventStream;
use crate::item::{Item, event_item};

/// The time for which rows of an unfinished transaction are read again. A transaction commits within milliseconds;
/// rows that are missing for longer are damage.
pub(crate) const COMMIT_TIME: Duration = Duration::from_secs(1);

impl EventStream<'_> {
    /// Folds the stored events after `onto` up to and including `last`. The stream is known to have events up to `end`
    /// or further.
    ///
    /// A query during a transaction may return some of its rows and not others. Missing events are queried again,
    /// because they appear a moment later; events that stay missing are an error.
    pub(crate) async fn fold_on(&self, onto: Folded, mut end: u64, last: u64) -> Result<Folded, StoreError> {
        let mut folded = onto;
        let mut retries = None;
        while folded.version() < last {
            let before = folded.version();
            let mut pages = self.events_between(folded.version() + 1, last).into_paginator().send();
            while let Some(page) = pages.next().await {
                let page = page.map_err(|error| StoreError::of_call("read an aggregate's events", error))?;
                let events = self.read_events(page.items.unwrap_or_default()).await?;
                end = end.max(events.stream_end);
                let version = folded.version();
                folded = self.fold(folded, events.contiguous_after(version))?;
                if folded.version() < events.last() {
                    break;
                }
            }
            if folded.version() >= end.min(last) {
                break;
            }
            if folded.version() > before {
                // These are other events than those that were missing before: of a later transaction.
                retries = None;
            }
            let retries = retries.get_or_insert_with(|| Backoff::until(Instant::now() + COMMIT_TIME));
            if !retries.wait_to_deadline().await {
                let missing = folded.version() + 1;
                return Err(self.corrupt(format!("event {missing} is missing, the stream has events up to {end}")));
            }
        }
        Ok(folded)
    }

    /// Reads the rows of events, and opens their personal values.
    pub(crate) async fn read_events(&self, rows: Vec<Item>) -> Result<QueriedEvents, StoreError> {
        let mut queried = QueriedEvents::read(rows)?;
        self.store.open_events(queried.events.iter_mut().map(|event| (self.key, event))).await?;
        Ok(queried)
    }

    /// Folds the given events.
    pub(crate) fn fold(&self, onto: Folded, events: &[RecordedEvent]) -> Result<Folded, StoreError> {
        self.model.fold(onto, events).map_err(|event| StoreError::unreadable(self.key, event))
    }

    /// The rows of the events from one number to another, both included.
    pub(crate) fn events_between(&self, first: u64, last: u64) -> QueryFluentBuilder {
        self.store.rows_between(self.key, keys::event_sk(first), keys::event_sk(last))
    }
}

/// Events in order, as a query returned them.
pub(crate) struct QueriedEvents {
    pub(crate) events: Vec<RecordedEvent>,
    /// The number of the last event that is known to exist: the rows of an append contain the number of its last event.
    pub(crate) stream_end: u64,
}

impl QueriedEvents {
    fn read(items: Vec<Item>) -> Result<Self, StoreError> {
        let mut stream_end = 0;
        let mut events = Vec::with_capacity(items.len());
        for item in items {
            let item = event_item(item)?;
            stream_end = stream_end.max(item.append_end.unwrap_or(item.seq_num));
            events.push(item.into_event()?);
        }
        Ok(Self { events, stream_end })
    }

    /// The number of the last of these events; 0 when there is none.
    pub(crate) fn last(&self) -> u64 {
        self.events.last().map_or(0, |event| event.seq_num)
    }

    /// The events that follow `version` and each other without a gap.
    pub(crate) fn contiguous_after(&self, version: u64) -> &[RecordedEvent] {
        let after = &self.events[self.events.partition_point(|event| event.seq_num <= version)..];
        &after[..(version + 1..).zip(after).take_while(|(next, event)| event.seq_num == *next).count()]
    }
}
