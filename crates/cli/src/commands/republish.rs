//! `daybook republish`: sends the messages of a time window again, from the outbox rows in the table.
//!
//! Invariants:
//! - The messages of an aggregate are sent in their order, and no message is sent after an unsent one.
//! - The window is read and sent in the order of its events. After each batch, all events before a position are done.
//!
//! `window` finds the events whose messages are sent, `batch` reads their messages.

mod batch;
#[cfg(test)]
mod tests;
mod window;

use std::io::Write;
use std::num::{NonZeroU32, NonZeroUsize};

use clap::Args;
use daybook_decider::record::timestamp;
use daybook_event_store::{EventStore, StoreError, UnreadableRow};
use daybook_settings::Environment;
use daybook_stream_relay::{Resend, ResendOutcome};
use daybook_table::{AggregateKey, OutboxItem, keys};
use futures_util::future::join;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use ulid::Ulid;

use self::batch::{Batch, Batches, ReadEvent};
use self::window::{EventId, WindowArgs, WindowReader};
use crate::operator::checkpoint::{Checkpoint, CheckpointArgs, CheckpointOwner};
use crate::operator::progress::ProgressLine;
use crate::operator::target::{SETTINGS_TO_REPUBLISH, STACK_HELP, StackArgs, check_bus};
use crate::operator::unsent::UnsentMessages;
use crate::operator::{Exit, OperatorContext, OperatorError, check_shards, output_line};

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
    /// Maximum concurrent requests to the bus, of up to ten messages each.
    #[arg(long, value_name = "N", default_value = "64")]
    pub concurrency: NonZeroUsize,
    /// Where the progress is stored.
    #[command(flatten)]
    pub checkpoint: CheckpointArgs,
    /// Print JSON, one object per line.
    #[arg(long)]
    pub json: bool,
    /// Which stack.
    #[command(flatten)]
    pub stack: StackArgs,
}

/// The number of messages by outcome.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RepublishCounts {
    dry_run: bool,
    /// The window.
    from: String,
    to: String,
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

/// The progress of a run, as its checkpoint contains it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RepublishProgress {
    /// The first and the last id that an event of the window can have. Relative times are resolved once, by the first run.
    window: (EventId, EventId),
    /// The id up to which all events are done.
    done: Option<EventId>,
    counts: RepublishCounts,
}

/// Sends the messages, or lists them.
pub(super) async fn run(args: RepublishArgs, context: &mut OperatorContext) -> Result<Exit, OperatorError> {
    let store = args.stack.store(&context.environment, SETTINGS_TO_REPUBLISH).await?;
    let resend = args.stack.bus(&context.environment, args.rate).await?;
    if args.yes {
        check_bus(&resend).await?;
    }
    republish(&args, store, resend, context).await
}

/// Sends the messages of the selected events in `store` again with `resend`, or lists them. Continues from the checkpoint, if
/// there is one.
pub async fn republish(
    args: &RepublishArgs,
    store: EventStore,
    resend: Resend,
    context: &mut OperatorContext,
) -> Result<Exit, OperatorError> {
    let resend = resend.with_concurrency(args.concurrency);
    let owner = match &args.checkpoint.checkpoint {
        Some(_) => args.checkpoint_owner(&context.environment, &store).await?,
        None => CheckpointOwner::new(),
    };
    let (mut checkpoint, progress) = Checkpoint::open(&args.checkpoint, owner)?;
    let now = Timestamp::now();
    let progress = match progress {
        Some(progress) => progress,
        None => RepublishProgress::begin(args, now, store.settled_up_to(now))?,
    };
    let event_types = args.window.event_names(&context.registry)?;
    check_shards(&store, &event_types).await?;
    let (EventId(first), EventId(last)) = progress.window;
    let first = progress.done.map_or(Some(first), |EventId(done)| keys::id_after(done)).unwrap_or(Ulid::max());
    let interrupt = context.interrupt.clone();
    let window = WindowReader::new(&store, &args.window, &event_types, (first, last));
    let mut batches = Batches::new(&store, window, args.rate, &interrupt);
    checkpoint.write_now(&progress)?;
    let line = ProgressLine::of_fraction();
    let mut republish =
        Republish { args, resend, context, line, progress, checkpoint, unsent: UnsentMessages::default() };

    let mut batch = batches.next().await;
    let read_error = loop {
        if batch.is_last {
            let error = batch.error.take();
            republish.settle(batch).await?;
            break error;
        }
        // The next batch is read while this one is sent.
        let (settled, next) = join(republish.settle(batch), batches.next()).await;
        settled?;
        if republish.unsent.any() || interrupt.is_set() {
            break None;
        }
        batch = next;
    };
    republish.end(read_error)
}

impl RepublishArgs {
    /// What a checkpoint belongs to.
    async fn checkpoint_owner(
        &self,
        environment: &Environment,
        store: &EventStore,
    ) -> Result<CheckpointOwner, OperatorError> {
        let bus = self.stack.bus_settings(environment)?;
        let window = &self.window;
        let aggregates: Vec<_> = window.aggregates.iter().map(|name| name.0.to_string()).collect();
        let options = json!({
            "from": window.from.to_string(), "to": window.to.to_string(), "types": window.types, "aggregates": aggregates,
            "messageTypes": window.message_types, "eventTypes": window.event_types, "yes": self.yes,
            "EVENT_BUS_NAME": bus.event_bus_name, "EVENT_SOURCE": bus.event_source,
        });
        Ok(self.stack.checkpoint_owner(environment, store, "republish", options).await)
    }
}

impl RepublishProgress {
    fn begin(args: &RepublishArgs, now: Timestamp, settled_up_to: Timestamp) -> Result<Self, OperatorError> {
        let (from, to) = (args.window.from.resolve(now), args.window.to.resolve(now));
        let unsettled_from = (settled_up_to < to).then(|| timestamp(settled_up_to.max(from)));
        let (from_text, to_text) = (timestamp(from), timestamp(to));
        let counts = RepublishCounts {
            dry_run: !args.yes,
            from: from_text,
            to: to_text,
            unsettled_from,
            ..RepublishCounts::default()
        };
        Ok(Self { window: EventId::window(from, to)?, done: None, counts })
    }

    /// The fraction of the window that is done.
    fn fraction(&self) -> f64 {
        let (first, last) = self.window;
        let milliseconds = |id: EventId| id.0.timestamp_ms().saturating_sub(first.0.timestamp_ms()) as f64;
        milliseconds(self.done.unwrap_or(first)) / milliseconds(last).max(1.0)
    }
}

struct Republish<'a> {
    args: &'a RepublishArgs,
    resend: Resend,
    context: &'a mut OperatorContext,
    line: ProgressLine,
    progress: RepublishProgress,
    checkpoint: Checkpoint,
    unsent: UnsentMessages,
}

/// An event whose messages are sent.
struct SettlingEvent {
    event_id: Ulid,
    aggregate: AggregateKey,
    seq_num: u64,
    labels: Vec<MessageLabel>,
    unreadable: Vec<UnreadableRow>,
    /// The number of its messages that no longer exist, of all that it published.
    gone: usize,
    published: usize,
}

/// The parts of a message that the output contains.
struct MessageLabel {
    seq: u64,
    name: String,
    id: String,
}

impl Republish<'_> {
    /// Sends the messages of a batch, or lists them. An event is done when its messages and those of all earlier events are
    /// sent or rejected.
    async fn settle(&mut self, batch: Batch) -> Result<(), OperatorError> {
        let mut rows = Vec::new();
        let mut events = Vec::new();
        for ReadEvent { event_id, aggregate, seq_num, messages } in batch.events {
            let (gone, published) = (messages.gone(), messages.published.unwrap_or_default());
            let selected = rows.len();
            rows.extend(messages.rows.into_iter().filter(|row| self.selects(row)));
            let labels = rows[selected..].iter().map(MessageLabel::of).collect();
            let unreadable = messages.unreadable;
            events.push(SettlingEvent { event_id, aggregate, seq_num, labels, unreadable, gone, published });
        }
        let outcomes = if !self.args.yes {
            rows.iter().map(|_| None).collect()
        } else if self.context.interrupt.is_set() {
            return Ok(());
        } else {
            let outcomes = self.resend.send(rows, self.context.interrupt.wait()).await;
            outcomes.into_iter().map(Some).collect::<Vec<_>>()
        };
        batch.unreadable.iter().try_for_each(|row| self.print_unreadable(row))?;
        let mut outcomes = outcomes.into_iter();
        for event in events {
            for (label, outcome) in event.labels.iter().zip(outcomes.by_ref()) {
                self.print_message(&event.aggregate, label, outcome)?;
            }
            if !self.unsent.any() {
                self.finish_event(&event)?;
            }
        }
        if !self.unsent.any() {
            self.progress.done = batch.through.map(EventId).or(self.progress.done);
        }
        let at = self.progress.done.and_then(EventId::time).unwrap_or_default();
        self.line.set_fraction(self.progress.fraction(), format!("{} events, at {at}", self.progress.counts.events));
        self.context.out.flush()?;
        self.checkpoint.write(&self.progress)
    }

    fn selects(&self, row: &OutboxItem) -> bool {
        let types = &self.args.window.message_types;
        types.is_empty() || types.contains(&row.message_type)
    }

    /// Counts an event that is done, and reports its messages that cannot be sent.
    fn finish_event(&mut self, event: &SettlingEvent) -> Result<(), OperatorError> {
        let SettlingEvent { event_id, aggregate, seq_num, gone, published, .. } = event;
        self.progress.counts.events += 1;
        self.progress.counts.messages += event.labels.len();
        self.progress.done = Some(EventId(*event_id));
        event.unreadable.iter().try_for_each(|row| self.print_unreadable(row))?;
        if *gone > 0 {
            self.progress.counts.gone += gone;
            let text = format!("{aggregate} event {seq_num}: {gone} of {published} messages no longer exist");
            let json =
                json!({"aggregate": aggregate.to_string(), "seqNum": seq_num, "messages": gone, "of": published});
            self.print("gone", &text, json)?;
        }
        Ok(())
    }

    /// Prints the summary, and returns how the command ended.
    fn end(mut self, read_error: Option<StoreError>) -> Result<Exit, OperatorError> {
        drop(self.line);
        let counts = &self.progress.counts;
        let RepublishCounts { from, to, events, messages, sent, refused, unreadable, gone, unsettled_from, .. } =
            counts;
        let (sending, end) = if self.args.yes {
            (format!("{sent} messages sent, {refused} rejected by the bus"), "")
        } else {
            (format!("{messages} messages would be sent"), "; this was a dry run, --yes sends them")
        };
        let unsettled =
            unsettled_from.as_ref().map(|from| format!("; events from {from} on may be missing")).unwrap_or_default();
        let text = format!(
            "{events} events in the window from {from} to {to}: {sending}, {unreadable} unreadable, {gone} no longer \
             exist{unsettled}{end}"
        );
        let next = match self.progress.done.and_then(EventId::time) {
            Some(done) if self.args.yes => format!("go on with --from {done} --to {to}"),
            _ => "run it again".to_owned(),
        };
        let next = self.checkpoint.how_to_go_on(next);
        let is_complete = self.progress.done == Some(self.progress.window.1);
        let interrupted = self.context.interrupt.is_set() && !is_complete;
        let stopped_early = interrupted || self.unsent.any() || read_error.is_some();
        self.context.print_summary(self.args.json, &text, counts, stopped_early.then_some(next.as_str()))?;
        let is_clean = refused + unreadable + gone == 0;
        if stopped_early {
            self.checkpoint.write_now(&self.progress)?;
        } else {
            self.checkpoint.finish()?;
        }
        if let Some(source) = read_error {
            return Err(OperatorError::Store { doing: format!("stopped early, {next}"), source });
        }
        if interrupted {
            return Ok(Exit::Interrupted);
        }
        self.unsent.into_result(next)?;
        Ok(if is_clean { Exit::Clean } else { Exit::Findings })
    }

    fn print_unreadable(&mut self, row: &UnreadableRow) -> Result<(), OperatorError> {
        self.progress.counts.unreadable += 1;
        let UnreadableRow { pk, sk, reason } = row;
        let aggregate = row.aggregate().map_or_else(|| pk.clone(), |key| key.to_string());
        let text = format!("{aggregate} {sk}: {reason}");
        self.print("unreadable", &text, json!({"aggregate": aggregate, "item": sk, "why": reason}))
    }

    /// Prints and counts a message with its outcome; `None` in a dry run.
    fn print_message(
        &mut self,
        aggregate: &AggregateKey,
        label: &MessageLabel,
        outcome: Option<ResendOutcome>,
    ) -> Result<(), OperatorError> {
        let (outcome, why) = match outcome {
            None => ("would-send", None),
            Some(ResendOutcome::Sent) => {
                self.progress.counts.sent += 1;
                ("sent", None)
            }
            Some(ResendOutcome::Rejected(error)) => {
                self.progress.counts.refused += 1;
                ("refused", Some(error.to_string()))
            }
            Some(ResendOutcome::Unsent(error)) => {
                self.unsent.add(error);
                return Ok(());
            }
        };
        let MessageLabel { seq, name, id } = label;
        let reason = why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
        let text = format!("{aggregate} {seq} {name} {id}{reason}");
        let json = json!({
            "aggregate": aggregate.to_string(), "messageSeq": seq, "messageType": name, "messageId": id, "why": why,
        });
        self.print(outcome, &text, json)
    }

    fn print(&mut self, outcome: &str, text: &str, mut json: Value) -> Result<(), OperatorError> {
        json["outcome"] = outcome.into();
        let line = output_line(self.args.json, json, format!("{outcome} {text}"));
        let out = &mut self.context.out;
        Ok(self.line.suspend(|| writeln!(out, "{line}"))?)
    }
}

impl MessageLabel {
    fn of(row: &OutboxItem) -> Self {
        Self { seq: row.message_seq, name: row.message_type.clone(), id: row.message_id.clone() }
    }
}
