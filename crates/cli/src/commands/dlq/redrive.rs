//! `daybook dlq redrive`.
//!
//! Invariants:
//! - Whatever happens to the output, messages that were sent are deleted from the queue and the others are put back.
//! - Only one batch of messages is in memory. The others are in a temporary file, and only what orders them is in memory.

use std::io::{self, Write};
use std::num::NonZeroU32;

use clap::Args;
use daybook_stream_relay::{Resend, ResendOutcome};
use daybook_table::OutboxItem;
use serde::Serialize;
use serde_json::json;

use super::body_file::BodyFile;
use crate::operator::dead_letter_message::{DeadLetterMessage, MessageFilterArgs};
use crate::operator::dead_letter_queue::DeadLetterQueue;
use crate::operator::progress::ProgressLine;
use crate::operator::queue_reading::{NotSeen, QueueReader};
use crate::operator::target::{STACK_HELP, StackArgs, check_bus};
use crate::operator::unsent::UnsentMessages;
use crate::operator::{Exit, OperatorContext, OperatorError, output_line};

/// Maximum messages per batch. After each batch, the messages that the bus accepted are deleted from the queue.
const BATCH_SIZE: usize = 500;

/// A batch ends before its bodies have more than this many bytes.
const BATCH_BYTES: usize = 8 * 1024 * 1024;

/// Send messages of the dead-letter queue again, with the same ids and bytes, and delete from it those that the bus accepted.
///
/// A dry run by default; `--yes` executes it. The messages of an aggregate are sent in their order, as far as the run received
/// them. Messages that the bus rejects again stay in the queue. Messages that cannot be sent also stay there, such as a
/// message that contains an unreadable record. A run that ends early loses nothing: the next run repeats messages that
/// were sent but not yet deleted, and consumers recognize them by their message ids.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = STACK_HELP)]
pub struct DlqRedriveArgs {
    /// Which messages.
    #[command(flatten)]
    pub filter: MessageFilterArgs,
    /// Send the messages; without this option, the command is a dry run.
    #[arg(long)]
    pub yes: bool,
    /// Maximum messages per second.
    #[arg(long, value_name = "N", default_value = "100")]
    pub rate: NonZeroU32,
    /// Maximum number of messages that are read. Default: all.
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Print JSON, one object per line.
    #[arg(long)]
    pub json: bool,
    /// Which stack.
    #[command(flatten)]
    pub stack: StackArgs,
}

/// The number of messages by outcome.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct RedriveCounts {
    dry_run: bool,
    sent: usize,
    refused: usize,
    /// Sent, but SQS did not delete them.
    not_deleted: usize,
    /// Messages that contain no outbox message.
    unsendable: usize,
    unsent: usize,
    #[serde(flatten)]
    not_seen: NotSeen,
}

/// All dead-letter messages that contain the same outbox message.
type Copies<'a> = &'a [DeadLetterMessage];

/// Sends the selected messages again, or lists them.
pub(super) async fn run(args: DlqRedriveArgs, context: &mut OperatorContext) -> Result<Exit, OperatorError> {
    let resend = args.stack.bus(&context.environment, args.rate).await?;
    if args.yes {
        check_bus(&resend).await?;
    }
    let queue = args.stack.dead_letters(&context.environment).await?;
    redrive(&args, queue, resend, context).await
}

/// Sends the selected messages of `queue` again with `resend`, or lists them.
pub async fn redrive(
    args: &DlqRedriveArgs,
    queue: DeadLetterQueue,
    resend: Resend,
    context: &mut OperatorContext,
) -> Result<Exit, OperatorError> {
    let (as_json, counts, unsent) = (args.json, RedriveCounts::default(), UnsentMessages::default());
    let bodies = args.yes.then(BodyFile::new).transpose()?;
    let mut redrive = Redrive { queue, resend, context, as_json, counts, bodies, unsent, output_error: None };
    let messages = redrive.receive(args).await?;
    let messages: Vec<_> = messages.chunk_by(DeadLetterMessage::is_copy_of).collect();
    if args.yes { redrive.send(&messages).await } else { redrive.list(&messages).await }
}

struct Redrive<'a> {
    queue: DeadLetterQueue,
    resend: Resend,
    context: &'a mut OperatorContext,
    as_json: bool,
    counts: RedriveCounts,
    /// The bodies of the selected messages; `None` in a dry run.
    bodies: Option<BodyFile>,
    unsent: UnsentMessages,
    /// The error of writing the output. After it, nothing more is printed.
    output_error: Option<io::Error>,
}

impl Redrive<'_> {
    /// Receives the selected messages, in the order of sending. Reports messages that cannot be sent, and puts them
    /// back.
    async fn receive(&mut self, args: &DlqRedriveArgs) -> Result<Vec<DeadLetterMessage>, OperatorError> {
        let bodies = &mut self.bodies;
        let sending_rate = args.yes.then_some(args.rate);
        let reader = QueueReader { sending_rate, ..QueueReader::new(&self.queue, args.limit, &self.context.interrupt) };
        let is_sent = |message: &DeadLetterMessage| message.content.is_ok() && args.filter.selects(message);
        let read = reader.read(|digest, message| match (bodies.as_mut(), message.body.as_deref()) {
            (Some(bodies), Some(body)) if is_sent(digest) => bodies.add(&digest.sqs_id, body),
            _ => Ok(()),
        });
        let reading = read.await?;
        let messages = reading.messages;
        self.counts.not_seen = reading.not_seen;
        let is_selected = |message: &DeadLetterMessage| args.filter.selects(message);
        let (mut selected, others): (Vec<_>, _) = messages.into_iter().partition(is_selected);
        self.queue.put_back(&others).await;
        selected.sort_by_cached_key(DeadLetterMessage::order);
        let unsendable = selected.split_off(selected.partition_point(|message| message.content.is_ok()));
        self.queue.put_back(&unsendable).await;
        self.counts.unsendable = unsendable.len();
        unsendable.iter().for_each(|message| self.print("unsendable", message, None));
        Ok(selected)
    }

    /// Lists the messages, and puts them back.
    async fn list(mut self, messages: &[Copies<'_>]) -> Result<Exit, OperatorError> {
        self.queue.put_back(&messages.concat()).await;
        messages.iter().for_each(|copies| self.print("would-send", &copies[0], None));
        let RedriveCounts { unsendable, not_seen, .. } = self.counts;
        let not_seen_text = not_seen.text();
        let text =
            format!("{} messages would be sent{not_seen_text}; this was a dry run, --yes sends them", messages.len());
        let summary = json!({
            "dryRun": true, "wouldSend": messages.len(), "unsendable": unsendable, "hidden": not_seen.hidden,
            "notReceived": not_seen.not_received,
        });
        self.output_error.map_or(Ok(()), Err)?;
        let interrupted = self.context.interrupt.is_set();
        self.context.print_summary(self.as_json, &text, &summary, interrupted.then_some("run it again"))?;
        if interrupted {
            return Ok(Exit::Interrupted);
        }
        Ok(if unsendable == 0 && !not_seen.any() { Exit::Clean } else { Exit::Findings })
    }

    /// Sends the messages, deletes those that the bus accepted, and puts the others back.
    async fn send(mut self, messages: &[Copies<'_>]) -> Result<Exit, OperatorError> {
        let progress = ProgressLine::of_count(messages.len());
        let mut left = Vec::new();
        let (mut rest, mut failed) = (messages, None);
        while !rest.is_empty() {
            let (batch, after) = rest.split_at(self.batch_len(rest));
            rest = after;
            // A message after an unsent one would overtake it, and without an output the sent messages could not be reported.
            let stops = self.unsent.any() || self.output_error.is_some() || self.context.interrupt.is_set();
            let rows = if stops || failed.is_some() { None } else { Some(self.rows(batch)) };
            match rows {
                None => left.extend(batch.concat()),
                Some(Err(error)) => {
                    left.extend(batch.concat());
                    failed = Some(error);
                }
                Some(Ok(rows)) => {
                    left.extend(self.send_batch(batch, rows, &progress).await);
                    progress.advance(batch.len());
                }
            }
        }
        drop(progress);
        self.queue.put_back(&left).await;
        self.counts.unsent = messages.len() - self.counts.sent - self.counts.refused;
        self.summarize(failed)
    }

    /// The number of messages at the beginning that are sent together.
    fn batch_len(&self, messages: &[Copies<'_>]) -> usize {
        let mut bytes = 0;
        let fits = messages.iter().take(BATCH_SIZE).take_while(|copies| {
            bytes += self.bodies.as_ref().map_or(0, |bodies| bodies.length(&copies[0].sqs_id));
            bytes <= BATCH_BYTES
        });
        fits.count().max(1)
    }

    /// The outbox rows of the messages.
    fn rows(&mut self, batch: &[Copies<'_>]) -> Result<Vec<OutboxItem>, OperatorError> {
        let Some(bodies) = &mut self.bodies else { return Ok(Vec::new()) };
        batch.iter().map(|copies| bodies.outbox_row(&copies[0].sqs_id)).collect()
    }

    /// Returns the messages that were not sent.
    async fn send_batch(
        &mut self,
        batch: &[Copies<'_>],
        rows: Vec<OutboxItem>,
        progress: &ProgressLine,
    ) -> Vec<DeadLetterMessage> {
        let outcomes = self.resend.send(rows, self.context.interrupt.wait()).await;
        let (mut sent, mut left) = (Vec::new(), Vec::new());
        for (copies, outcome) in batch.iter().zip(outcomes) {
            match outcome {
                ResendOutcome::Sent => {
                    self.counts.sent += 1;
                    sent.extend_from_slice(copies);
                    progress.suspend(|| self.print("sent", &copies[0], None));
                }
                ResendOutcome::Rejected(error) => {
                    self.counts.refused += 1;
                    left.extend_from_slice(copies);
                    progress.suspend(|| self.print("refused", &copies[0], Some(&error.to_string())));
                }
                ResendOutcome::Unsent(error) => {
                    left.extend_from_slice(copies);
                    self.unsent.add(error);
                }
            }
        }
        for (message, reason) in self.queue.delete(&sent).await {
            self.counts.not_deleted += 1;
            progress.suspend(|| self.print("sent-not-deleted", &message, Some(&reason)));
        }
        left
    }

    fn summarize(self, failed: Option<OperatorError>) -> Result<Exit, OperatorError> {
        let RedriveCounts { sent, refused, not_deleted, unsendable, unsent, not_seen, .. } = self.counts;
        let except =
            if not_deleted > 0 { format!(", except {not_deleted} that SQS did not delete") } else { String::new() };
        let text = format!(
            "{sent} messages sent and deleted from the queue{except}; in the queue: {refused} that the bus rejects, \
             {unsendable} unsendable, {unsent} not sent{}",
            not_seen.text()
        );
        self.output_error.map_or(Ok(()), Err)?;
        let interrupted = self.context.interrupt.is_set();
        let how_to_go_on = interrupted.then_some("run it again");
        self.context.print_summary(self.as_json, &text, &self.counts, how_to_go_on)?;
        if let Some(error) = failed {
            return Err(error);
        }
        if interrupted {
            return Ok(Exit::Interrupted);
        }
        self.unsent.into_result("the other messages are in the queue; run it again".to_owned())?;
        Ok(if refused + not_deleted + unsendable == 0 && !not_seen.any() { Exit::Clean } else { Exit::Findings })
    }

    /// Prints the outcome of a message, unless the output failed before.
    fn print(&mut self, outcome: &str, message: &DeadLetterMessage, why: Option<&str>) {
        if self.output_error.is_some() {
            return;
        }
        let mut json = message.json();
        json["outcome"] = json!(outcome);
        json["why"] = json!(why);
        let text = match (&message.content, why) {
            (Ok(content), None) => content.to_string(),
            (Ok(content), Some(why)) => format!("{content} ({why})"),
            (Err(_), _) => message.to_string(),
        };
        let line = output_line(self.as_json, json, format!("{outcome} {text}"));
        self.output_error = writeln!(self.context.out, "{line}").err();
    }
}
