//! `daybook republish`: sends the messages of a time window again, from the outbox rows in the table.
//!
//! Invariant: the messages of an aggregate are sent in their order, and no message is sent after an unsent one.
//!
//! `window` finds the events whose messages are sent.

mod window;

use std::collections::BTreeMap;
use std::io::Write;
use std::num::NonZeroU32;

use clap::Args;
use daybook_decider::record::timestamp;
use daybook_event_store::{EventStore, StoreError, UnreadableRow};
use daybook_stream_relay::{Resend, ResendOutcome};
use daybook_table::{AggregateKey, OutboxItem, keys};
use serde::Serialize;
use serde_json::{Value, json};

use self::window::{AggregateEvents, WindowArgs, WindowEvents, cannot_read};
use crate::operator::progress::ProgressLine;
use crate::operator::target::{BusArgs, SETTINGS_TO_REPUBLISH, STACK_HELP, TableArgs, check_bus};
use crate::operator::unsent::UnsentMessages;
use crate::operator::{Exit, OperatorContext, OperatorError, output_line};

/// Maximum rows in a batch.
const BATCH_SIZE: usize = 500;

/// A batch is sent as soon as its details have this many bytes.
const BATCH_BYTES: usize = 8 * 1024 * 1024;

/// Send the messages of a time window again, with the same ids and bytes, from the outbox rows in the table.
///
/// For outages in which the stream was not read for more than 24 hours, so that it has deleted its records. The rows stay in the
/// table for OUTBOX_TTL_DAYS. A dry run by default; `--yes` sends the messages. Consumers that received a message before
/// recognize it by its message id.
///
/// The events of the window are found in the index, by the time in their ids; the table is not scanned. Clocks of writers
/// differ, so let the window begin a little earlier and end a little later. The messages of an aggregate are sent in their order,
/// those of different aggregates concurrently. Messages whose rows no longer exist are counted, and their events are printed.
/// Rows that cannot be read are also counted and printed. The summary contains the time from which events of the window
/// may still be missing, because their commands may not be complete.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = STACK_HELP)]
pub struct RepublishArgs {
    /// Which events.
    #[command(flatten)]
    pub window: WindowArgs,
    /// Send the messages; without this option, the command is a dry run.
    #[arg(long)]
    pub yes: bool,
    /// Maximum messages per second.
    #[arg(long, value_name = "N", default_value = "100")]
    pub rate: NonZeroU32,
    /// Print JSON, one object per line.
    #[arg(long)]
    pub json: bool,
    /// Which table.
    #[command(flatten)]
    pub table: TableArgs,
    /// Which bus.
    #[command(flatten)]
    pub bus: BusArgs,
}

/// The number of messages by outcome.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct RepublishCounts {
    dry_run: bool,
    events: usize,
    messages: usize,
    sent: usize,
    refused: usize,
    unreadable: usize,
    /// Published by an event, and no longer in the table.
    gone: usize,
    /// The time from which events of the window may be missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    unsettled_from: Option<String>,
}

/// Sends the messages, or lists them.
///
/// # Errors
///
/// When the table cannot be read, or the bus does not exist or accepts no more messages.
pub(super) async fn run(args: RepublishArgs, context: &mut OperatorContext) -> Result<Exit, OperatorError> {
    let store = args.table.connect(&context.environment, SETTINGS_TO_REPUBLISH).await?;
    let resend = args.bus.connect(&context.environment, args.rate).await?;
    if args.yes {
        check_bus(&resend).await?;
    }
    republish(&args, store, resend, context).await
}

/// Sends the messages of the selected events in `store` again with `resend`, or lists them.
///
/// # Errors
///
/// When the table cannot be read, or the bus accepts no more messages.
pub async fn republish(
    args: &RepublishArgs,
    store: EventStore,
    resend: Resend,
    context: &mut OperatorContext,
) -> Result<Exit, OperatorError> {
    let events = args.window.find_events(&store, &context.registry, &context.interrupt).await?;
    let republish = Republish {
        args,
        store,
        resend,
        context,
        progress: ProgressLine::of_count(events.by_aggregate.len()),
        batch: Vec::new(),
        counts: RepublishCounts { dry_run: !args.yes, ..RepublishCounts::default() },
        unsent: UnsentMessages::default(),
        settled: None,
        current: None,
    };
    republish.run(events).await
}

/// An outbox row of an aggregate.
type Row = (AggregateKey, OutboxItem);

struct Republish<'a> {
    args: &'a RepublishArgs,
    store: EventStore,
    resend: Resend,
    context: &'a mut OperatorContext,
    progress: ProgressLine,
    /// Rows to be sent together, ordered by aggregate.
    batch: Vec<Row>,
    counts: RepublishCounts,
    unsent: UnsentMessages,
    /// The last aggregate that the next run does not need to repeat.
    settled: Option<AggregateKey>,
    /// The aggregate after it.
    current: Option<AggregateKey>,
}

impl Republish<'_> {
    /// Sends the messages of these events, until Ctrl-C or an error of the table or the bus.
    async fn run(mut self, window: WindowEvents) -> Result<Exit, OperatorError> {
        let WindowEvents { by_aggregate: events, unreadable, unsettled_from } = window;
        self.counts.events = events.values().map(AggregateEvents::len).sum();
        self.counts.unsettled_from = unsettled_from.map(timestamp);
        unreadable.iter().try_for_each(|row| self.print_unreadable(row))?;
        let (mut read, mut read_error) = (None, None);
        for (key, events) in events {
            if self.context.interrupt.is_set() || self.unsent.any() {
                break;
            }
            match self.add_aggregate(&key, &events).await {
                Ok(()) => read = Some(key),
                Err(OperatorError::Store { source, .. }) => {
                    read_error = Some(source);
                    break;
                }
                Err(other) => return Err(other),
            }
        }
        self.flush().await?;
        if read_error.is_some() && !self.unsent.any() {
            self.settled = read;
        }
        self.summarize(read_error)
    }

    /// Reads the rows of an aggregate, and sends them as soon as they fill a batch.
    async fn add_aggregate(&mut self, key: &AggregateKey, events: &AggregateEvents) -> Result<(), OperatorError> {
        let (Some((&first, _)), Some((&last, _))) = (events.first_key_value(), events.last_key_value()) else {
            return Ok(());
        };
        let mut found: BTreeMap<u64, usize> = BTreeMap::new();
        let mut messages_before = None;
        let mut after = None;
        // The rows of the last event on a page. The next page may contain more rows of that event.
        let mut incomplete = Vec::new();
        loop {
            let page = self.store.admin().outbox(key, first, last, after).await.map_err(cannot_read)?;
            for row in page.unreadable {
                match event_of(&row.sk) {
                    Some(seq_num) if !events.contains_key(&seq_num) => continue,
                    Some(seq_num) => *found.entry(seq_num).or_default() += 1,
                    None => {}
                }
                self.print_unreadable(&row)?;
            }
            after = page.next;
            let at_the_end = after.as_deref().and_then(event_of);
            let mut rows: Vec<_> = std::mem::take(&mut incomplete);
            rows.extend(page.rows.into_iter().filter(|row| events.contains_key(&row.seq_num)));
            // If an event has more than ten messages, their sort keys are not in the order of the message numbers.
            rows.sort_by_key(|row| row.message_seq);
            let is_incomplete = |row: &OutboxItem| at_the_end.is_some() && event_of(&row.sk) == at_the_end;
            (incomplete, rows) = rows.into_iter().partition(is_incomplete);
            for row in rows {
                if messages_before.is_none() && row.seq_num == first {
                    messages_before = index_of(&row).and_then(|index| row.message_seq.checked_sub(index + 1));
                }
                *found.entry(row.seq_num).or_default() += 1;
                self.add_row(key, row).await?;
                if self.unsent.any() {
                    return Ok(());
                }
            }
            if after.is_none() || self.context.interrupt.is_set() {
                break;
            }
        }
        // After an interruption, the remaining rows were not read, so they do not count as gone.
        if after.is_none() {
            self.report_gone(key, events, &found, messages_before).await?;
        }
        self.progress.advance(1);
        Ok(())
    }

    async fn add_row(&mut self, key: &AggregateKey, row: OutboxItem) -> Result<(), OperatorError> {
        self.counts.messages += 1;
        self.batch.push((key.clone(), row));
        let bytes: usize = self.batch.iter().map(|(_, row)| row.detail.len()).sum();
        if self.batch.len() >= BATCH_SIZE || bytes >= BATCH_BYTES {
            self.flush().await?;
        }
        Ok(())
    }

    /// Reports messages that the events published and whose rows were not found.
    async fn report_gone(
        &mut self,
        key: &AggregateKey,
        events: &AggregateEvents,
        found: &BTreeMap<u64, usize>,
        mut messages_before: Option<u64>,
    ) -> Result<(), OperatorError> {
        let mut expected = None;
        for (&seq_num, &messages_up_to) in events {
            // At the beginning of the window and after a gap in it, the count is read from the preceding event.
            if expected != Some(seq_num) && messages_before.is_none() {
                messages_before = self.store.admin().messages_up_to(key, seq_num - 1).await.map_err(cannot_read)?;
            }
            if let (Some(before), Some(up_to)) = (messages_before, messages_up_to) {
                let published = usize::try_from(up_to.saturating_sub(before)).unwrap_or(usize::MAX);
                let gone = published.saturating_sub(found.get(&seq_num).copied().unwrap_or_default());
                if gone > 0 {
                    self.counts.gone += gone;
                    let text = format!("{key} event {seq_num}: {gone} of {published} messages no longer exist");
                    let json =
                        json!({"aggregate": key.to_string(), "seqNum": seq_num, "messages": gone, "of": published});
                    self.print("gone", &text, json)?;
                }
            }
            expected = Some(seq_num + 1);
            messages_before = messages_up_to.filter(|_| events.contains_key(&(seq_num + 1)));
        }
        Ok(())
    }

    /// Sends the batch, or lists it.
    async fn flush(&mut self) -> Result<(), OperatorError> {
        let batch = std::mem::take(&mut self.batch);
        if !self.args.yes {
            return batch.iter().try_for_each(|row| self.print_row("would-send", row, None));
        }
        if self.context.interrupt.is_set() {
            batch.iter().for_each(|_| self.unsent.add(None));
            return Ok(());
        }
        let rows = batch.iter().map(|(_, row)| row.clone()).collect();
        let outcomes = self.resend.send(rows, self.context.interrupt.wait()).await;
        for (row, outcome) in batch.iter().zip(outcomes) {
            if !self.unsent.any() && self.current.as_ref() != Some(&row.0) {
                self.settled = self.current.replace(row.0.clone());
            }
            match outcome {
                ResendOutcome::Sent => {
                    self.counts.sent += 1;
                    self.print_row("sent", row, None)?;
                }
                ResendOutcome::Rejected(error) => {
                    self.counts.refused += 1;
                    self.print_row("refused", row, Some(error.to_string()))?;
                }
                ResendOutcome::Unsent(error) => self.unsent.add(error),
            }
        }
        Ok(())
    }

    /// Prints the summary, and returns how the command ended.
    fn summarize(self, read_error: Option<StoreError>) -> Result<Exit, OperatorError> {
        drop(self.progress);
        let RepublishCounts { events, messages, sent, refused, unreadable, gone, unsettled_from, .. } = &self.counts;
        let (sending, end) = if self.args.yes {
            (format!("{sent} messages sent, {refused} rejected by the bus"), "")
        } else {
            (format!("{messages} messages would be sent"), "; this was a dry run, --yes sends them")
        };
        let unsettled =
            unsettled_from.as_ref().map(|from| format!("; events from {from} on may be missing")).unwrap_or_default();
        let text = format!(
            "{events} events in the window: {sending}, {unreadable} unreadable, {gone} no longer exist{unsettled}{end}"
        );
        let next = match self.settled {
            Some(key) if self.args.yes => format!("go on with --after {key}"),
            _ => "run it again".to_owned(),
        };
        let interrupted = self.context.interrupt.is_set();
        let how_to_go_on = (interrupted || self.unsent.any() || read_error.is_some()).then_some(next.as_str());
        self.context.print_summary(self.args.json, &text, &self.counts, how_to_go_on)?;
        if let Some(source) = read_error {
            return Err(OperatorError::Store { doing: format!("stopped early, {next}"), source });
        }
        if interrupted {
            return Ok(Exit::Interrupted);
        }
        self.unsent.into_result(next)?;
        Ok(if refused + unreadable + gone == 0 { Exit::Clean } else { Exit::Findings })
    }

    fn print_unreadable(&mut self, row: &UnreadableRow) -> Result<(), OperatorError> {
        self.counts.unreadable += 1;
        let UnreadableRow { pk, sk, reason } = row;
        let aggregate = row.aggregate().map_or_else(|| pk.clone(), |key| key.to_string());
        let text = format!("{aggregate} {sk}: {reason}");
        self.print("unreadable", &text, json!({"aggregate": aggregate, "item": sk, "why": reason}))
    }

    fn print_row(&mut self, outcome: &str, (key, row): &Row, why: Option<String>) -> Result<(), OperatorError> {
        let reason = why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
        let text = format!("{key} {} {} {}{reason}", row.message_seq, row.message_type, row.message_id);
        let json = json!({
            "aggregate": key.to_string(), "messageSeq": row.message_seq, "messageType": row.message_type,
            "messageId": row.message_id, "why": why,
        });
        self.print(outcome, &text, json)
    }

    fn print(&mut self, outcome: &str, text: &str, mut json: Value) -> Result<(), OperatorError> {
        json["outcome"] = outcome.into();
        let line = output_line(self.args.json, json, format!("{outcome} {text}"));
        let out = &mut self.context.out;
        Ok(self.progress.suspend(|| writeln!(out, "{line}"))?)
    }
}

/// The number of the event that published an outbox row, by its sort key.
fn event_of(sk: &str) -> Option<u64> {
    sk.strip_prefix(keys::OUTBOX_PREFIX)?.split_once('#')?.0.parse().ok()
}

/// The message's index among those of its event.
fn index_of(row: &OutboxItem) -> Option<u64> {
    row.sk.rsplit_once('#')?.1.parse().ok()
}
