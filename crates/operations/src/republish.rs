//! Sends the messages of a time window again, from the outbox rows in the table.
//!
//! Invariants:
//! - The messages of an aggregate are sent in their order, and no message is sent after an unsent one.
//! - The window is read and sent in the order of its events. After each batch, all events before a position are done.
//!
//! `window` finds the events whose messages are sent, and reads the messages.

#[cfg(test)]
mod tests;
mod window;

use std::io;
use std::num::{NonZeroU32, NonZeroUsize};

use clap::Args;
use daybook_admin::{EventMessages, IndexEntry};
use daybook_decider::record::timestamp;
use daybook_event_store::{EventStore, StoreError, UnreadableRow};
use daybook_stream_relay::Resend;
use daybook_table::{AggregateKey, OutboxItem};
use futures_util::future::join;
use jiff::Timestamp;
use serde::Serialize;
use ulid::Ulid;

pub use self::window::Window;
use self::window::{EventBatch, EventBatches, WindowReader, ids_between, time_of};
use crate::error::OperatorError;
use crate::messages::{MessageLabel, MessageOutcome, UnsentMessages};
use crate::selection::check_shards;
use crate::stack::{SETTINGS_TO_REPUBLISH, Stack};

/// Send the messages of a time window again, with the same ids and bytes, from the outbox rows in the table.
///
/// For outages in which the stream was not read for more than 24 hours, so that it has deleted its records. The rows stay in the
/// table for OUTBOX_TTL_DAYS. A dry run by default; `--yes` sends the messages. Consumers that received a message before
/// recognize it by its message id.
///
/// The events of the window are found in the index, by the time in their ids; the table is not scanned. Clocks of writers
/// differ, so let the window begin a little earlier and end a little later. The window is sent in the order of its events: the
/// messages of an aggregate one after the other, those of different aggregates concurrently. Messages whose rows no longer exist
/// are counted, and their events are printed.
/// Rows that cannot be read are also counted and printed. The summary contains the time from which events of the window
/// may still be missing, because their commands may not be complete.
#[derive(Clone, Debug, Args)]
pub struct RepublishOptions {
    #[command(flatten)]
    pub window: Window,
    /// Send the messages; without this option, the command is a dry run.
    #[arg(long)]
    pub yes: bool,
    /// Maximum messages per second.
    #[arg(long, value_name = "N", default_value = "100")]
    pub rate: NonZeroU32,
    /// Maximum concurrent requests to the bus, of up to ten messages each.
    #[arg(long, value_name = "N", default_value = "64")]
    pub concurrency: NonZeroUsize,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RepublishCounts {
    pub dry_run: bool,
    pub from: String,
    pub to: String,
    pub events: usize,
    pub messages: usize,
    pub sent: usize,
    pub rejected: usize,
    pub unreadable: usize,
    /// Published by an event, and no longer in the table.
    pub gone: usize,
    /// The time from which events of the window may be missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incomplete_from: Option<String>,
}

impl RepublishCounts {
    pub fn is_clean(&self) -> bool {
        self.rejected + self.unreadable + self.gone == 0
    }
}

#[derive(Debug)]
pub enum Republishing<'a> {
    Message(&'a MessageLabel, MessageOutcome),
    Gone { aggregate: &'a AggregateKey, seq_num: u64, gone: usize, published: usize },
    Unreadable(&'a UnreadableRow),
}

#[derive(Debug)]
pub struct Republished {
    pub counts: RepublishCounts,
    pub how_to_go_on: Option<String>,
    /// Why it stopped early, unless it was interrupted.
    pub failure: Option<OperatorError>,
}

/// Sends the messages of the selected events again, and reports what becomes of each.
pub async fn republish(
    stack: &Stack,
    options: &RepublishOptions,
    report: impl FnMut(Republishing<'_>) -> io::Result<()>,
) -> Result<Republished, OperatorError> {
    let store = stack.store(SETTINGS_TO_REPUBLISH).await?;
    let resend = stack.bus(options.rate, options.yes).await?;
    republish_from(stack, options, &store, resend, report).await
}

/// The same for the events in `store`, whose messages are sent with `resend`.
pub async fn republish_from(
    stack: &Stack,
    options: &RepublishOptions,
    store: &EventStore,
    resend: Resend,
    report: impl FnMut(Republishing<'_>) -> io::Result<()>,
) -> Result<Republished, OperatorError> {
    let resend = resend.with_concurrency(options.concurrency);
    let now = Timestamp::now();
    let (from, to) = (options.window.from.resolve(now), options.window.to.resolve(now));
    let (window, settled_up_to) = (ids_between(from, to)?, store.settled_up_to(now));
    let counts = RepublishCounts {
        dry_run: !options.yes,
        from: timestamp(from),
        to: timestamp(to),
        incomplete_from: (settled_up_to < to).then(|| timestamp(settled_up_to.max(from))),
        ..RepublishCounts::default()
    };
    let event_types = options.window.event_names(&stack.registry)?;
    check_shards(store, &event_types).await?;
    let reader = WindowReader::new(store, &options.window, &event_types, window);
    let mut batches = EventBatches::new(reader, options.rate, &stack.interrupt);
    let unsent = UnsentMessages::default();
    let mut republish = Republish { stack, options, resend, report, window, done: None, counts, unsent };

    let mut batch = batches.next().await;
    let read_error = loop {
        if batch.is_last {
            let error = batch.error.take();
            republish.send(batch).await?;
            break error;
        }
        // The next batch is read while this one is sent.
        let (sent, next) = join(republish.send(batch), batches.next()).await;
        sent?;
        if republish.unsent.any() || stack.interrupt.is_cancelled() {
            break None;
        }
        batch = next;
    };
    republish.end(read_error)
}

struct Republish<'a, R> {
    stack: &'a Stack,
    options: &'a RepublishOptions,
    resend: Resend,
    report: R,
    /// The first and the last id that an event of the window can have.
    window: (Ulid, Ulid),
    done: Option<Ulid>,
    counts: RepublishCounts,
    unsent: UnsentMessages,
}

impl<R: FnMut(Republishing<'_>) -> io::Result<()>> Republish<'_, R> {
    /// Sends the messages of a batch, or lists them. An event is done when its messages and those of all earlier events are
    /// sent or rejected.
    async fn send(&mut self, batch: EventBatch) -> Result<(), OperatorError> {
        let mut rows = Vec::new();
        let mut events = Vec::new();
        for (event, mut messages) in batch.events {
            let (gone, selected) = (messages.gone(), rows.len());
            rows.extend(std::mem::take(&mut messages.rows).into_iter().filter(|row| self.selects(row)));
            let labels: Vec<_> = rows[selected..].iter().map(MessageLabel::of).collect();
            events.push((event, messages, labels, gone));
        }
        let outcomes = if !self.options.yes {
            rows.iter().map(|_| None).collect()
        } else if self.stack.interrupt.is_cancelled() {
            return Ok(());
        } else {
            let outcomes = self.resend.send(rows, self.stack.interrupt.cancelled()).await;
            outcomes.into_iter().map(Some).collect::<Vec<_>>()
        };
        batch.unreadable.iter().try_for_each(|row| self.report_unreadable(row))?;
        let mut outcomes = outcomes.into_iter();
        for (event, messages, labels, gone) in events {
            for (label, outcome) in labels.iter().zip(outcomes.by_ref()) {
                let outcome = match outcome {
                    // In a dry run.
                    None => Some(MessageOutcome::WouldSend),
                    Some(outcome) => self.unsent.count(outcome, (&mut self.counts.sent, &mut self.counts.rejected)),
                };
                if let Some(outcome) = outcome {
                    (self.report)(Republishing::Message(label, outcome))?;
                }
            }
            if !self.unsent.any() {
                self.counts.messages += labels.len();
                self.finish_event(&event, &messages, gone)?;
            }
        }
        if !self.unsent.any() {
            self.done = batch.through.or(self.done);
        }
        let at = self.done.and_then(time_of).unwrap_or_default();
        let doing = format!("{} events, at {at}", self.counts.events);
        let (first, last) = self.window;
        let milliseconds = |id: Ulid| id.timestamp_ms().saturating_sub(first.timestamp_ms()) as f64;
        let fraction = milliseconds(self.done.unwrap_or(first)) / milliseconds(last).max(1.0);
        (self.stack.progress)(Some(fraction), doing);
        Ok(())
    }

    fn selects(&self, row: &OutboxItem) -> bool {
        let types = &self.options.window.message_types;
        types.is_empty() || types.contains(&row.message_type)
    }

    /// Counts an event that is done, and reports its messages that cannot be sent, such as those that no longer exist.
    fn finish_event(&mut self, event: &IndexEntry, messages: &EventMessages, gone: usize) -> io::Result<()> {
        let IndexEntry { event_id, aggregate, seq_num, .. } = event;
        self.counts.events += 1;
        self.done = Some(*event_id);
        messages.unreadable.iter().try_for_each(|row| self.report_unreadable(row))?;
        if gone > 0 {
            self.counts.gone += gone;
            let (seq_num, published) = (*seq_num, messages.published.unwrap_or_default());
            (self.report)(Republishing::Gone { aggregate, seq_num, gone, published })?;
        }
        Ok(())
    }

    fn end(self, read_error: Option<StoreError>) -> Result<Republished, OperatorError> {
        let next = match self.done.and_then(time_of) {
            Some(done) if self.options.yes => format!("go on with --from {done} --to {}", self.counts.to),
            _ => "run it again".to_owned(),
        };
        let interrupted = self.stack.interrupt.is_cancelled() && self.done != Some(self.window.1);
        if !interrupted && !self.unsent.any() && read_error.is_none() {
            return Ok(Republished { counts: self.counts, how_to_go_on: None, failure: None });
        }
        let failure = match read_error {
            Some(error) => Some(OperatorError::store(&format!("stopped early, {next}"))(error)),
            None if interrupted => None,
            None => self.unsent.into_result(next.clone()).err(),
        };
        Ok(Republished { counts: self.counts, how_to_go_on: Some(next), failure })
    }

    fn report_unreadable(&mut self, row: &UnreadableRow) -> io::Result<()> {
        self.counts.unreadable += 1;
        (self.report)(Republishing::Unreadable(row))
    }
}
