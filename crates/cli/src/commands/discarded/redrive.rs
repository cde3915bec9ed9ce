//! `daybook discarded redrive`.
//!
//! Invariant: an object is deleted only after the bus has accepted every message in it, and the changes queue every changed
//! aggregate. No message is sent after an unsent one.

use std::io::Write;
use std::num::NonZeroU32;

use clap::Args;
use daybook_stream_relay::{Resend, ResendOutcome};
use daybook_table::{AggregateKey, OutboxItem};
use serde::Serialize;
use serde_json::json;

use crate::operator::changes_queue::ChangesQueue;
use crate::operator::discarded_objects::{DiscardedObject, DiscardedObjects};
use crate::operator::target::{STACK_HELP, StackArgs, check_bus};
use crate::operator::unsent::UnsentMessages;
use crate::operator::{Exit, OperatorContext, OperatorError, output_line};

/// Send the messages of discarded records, with the same ids and bytes, and delete the objects whose messages the bus accepted.
///
/// With read models, the records also contain which aggregates have new events. They are sent to the projector's queue.
///
/// A dry run by default; `--yes` executes it. The objects are sent in the order of the stream, so the messages of an aggregate are
/// sent in their order. An object stays in the bucket if the bus rejects one of its messages, if one of its records
/// cannot be read, if it contains no records, or if it is of the snapshotter. Consumers that received a message before
/// recognize it by its message id.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = STACK_HELP)]
pub struct DiscardedRedriveArgs {
    /// Only this object, by its key; can be repeated. Default: all.
    #[arg(long, value_name = "KEY")]
    pub object: Vec<String>,
    /// Send the messages; without this option, the command is a dry run.
    #[arg(long)]
    pub yes: bool,
    /// Delete no object.
    #[arg(long)]
    pub keep: bool,
    /// Maximum messages per second.
    #[arg(long, value_name = "N", default_value = "100")]
    pub rate: NonZeroU32,
    /// Print JSON, one object per line.
    #[arg(long)]
    pub json: bool,
    /// Which stack.
    #[command(flatten)]
    pub stack: StackArgs,
}

/// The number of messages and objects by outcome.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct RedriveCounts {
    dry_run: bool,
    messages: usize,
    sent: usize,
    refused: usize,
    unsent: usize,
    deleted: usize,
    /// Aggregates with new events that were sent to the projector, or would be.
    changed: usize,
    /// Objects of the snapshotter, which contain no messages.
    without_messages: usize,
    /// Objects that stay for another reason.
    left: usize,
}

struct Redrive<'a> {
    args: &'a DiscardedRedriveArgs,
    objects: DiscardedObjects,
    resend: Resend,
    changes_queue: Option<ChangesQueue>,
    context: &'a mut OperatorContext,
    counts: RedriveCounts,
    unsent: UnsentMessages,
}

/// Sends the messages, or lists them.
pub(super) async fn run(args: DiscardedRedriveArgs, context: &mut OperatorContext) -> Result<Exit, OperatorError> {
    let resend = args.stack.bus(&context.environment, args.rate).await?;
    if args.yes {
        check_bus(&resend).await?;
    }
    let objects = args.stack.discarded(&context.environment).await?;
    let counts = RedriveCounts { dry_run: !args.yes, ..RedriveCounts::default() };
    let changes_queue = args.stack.changes_queue_if_set(&context.environment).await?;
    let unsent = UnsentMessages::default();
    let redrive = Redrive { args: &args, objects, resend, changes_queue, context, counts, unsent };
    redrive.run().await
}

impl Redrive<'_> {
    async fn run(mut self) -> Result<Exit, OperatorError> {
        let mut in_order = Vec::new();
        for key in self.objects.keys().await? {
            if self.args.object.is_empty() || self.args.object.contains(&key) {
                // Only the order is held: the objects may have more bytes than the memory.
                let object = self.objects.read(&key).await?;
                in_order.push((object.order(), key));
            }
            if self.context.interrupt.is_set() {
                break;
            }
        }
        in_order.sort();
        for (_, key) in in_order {
            // A message after an unsent one would overtake it.
            if self.context.interrupt.is_set() || self.unsent.any() {
                break;
            }
            let object = self.objects.read(&key).await?;
            self.send_object(&object).await?;
        }
        self.summarize()
    }

    async fn send_object(&mut self, object: &DiscardedObject) -> Result<(), OperatorError> {
        let reason_to_stay = object.reason_to_stay().or_else(|| self.lacks_queue(object));
        if let Some(reason) = &reason_to_stay {
            self.counts.left += 1;
            self.print("left", object, reason)?;
        } else if object.rows().is_empty() && object.changed().is_empty() {
            self.counts.without_messages += 1;
            let text = "it contains no messages; if it is of the snapshotter, run daybook snapshot rebuild";
            return self.print("without-messages", object, text);
        }
        let rows = object.rows();
        self.counts.messages += rows.len();
        if self.changes_queue.is_some() {
            self.counts.changed += object.changed().len();
        }
        if !self.args.yes {
            return rows.iter().try_for_each(|row| self.print_row("would-send", row, None));
        }
        let outcomes = self.resend.send(rows.to_vec(), self.context.interrupt.wait()).await;
        let mut are_all_sent = true;
        let mut written = Ok(());
        for (row, outcome) in rows.iter().zip(outcomes) {
            are_all_sent &= outcome == ResendOutcome::Sent;
            match outcome {
                ResendOutcome::Sent => {
                    self.counts.sent += 1;
                    written = written.and_then(|()| self.print_row("sent", row, None));
                }
                ResendOutcome::Rejected(error) => {
                    self.counts.refused += 1;
                    written = written.and_then(|()| self.print_row("refused", row, Some(error.to_string())));
                }
                ResendOutcome::Unsent(error) => {
                    self.counts.unsent += 1;
                    self.unsent.add(error);
                }
            }
        }
        if let Some(queue) = &self.changes_queue {
            queue.send(object.changed()).await?;
        }
        if are_all_sent && reason_to_stay.is_none() && !self.args.keep {
            self.objects.delete(&object.key).await?;
            self.counts.deleted += 1;
            written = written.and_then(|()| self.print("deleted", object, "every message was sent"));
        }
        written
    }

    /// The reason why an object stays whose changed aggregates cannot be sent to the projector.
    fn lacks_queue(&self, object: &DiscardedObject) -> Option<String> {
        let count = object.changed().len();
        let lacks = count > 0 && self.changes_queue.is_none();
        lacks.then(|| format!("it contains {count} changed aggregates for the projector: set CHANGES_QUEUE_URL"))
    }

    fn summarize(self) -> Result<Exit, OperatorError> {
        let RedriveCounts { messages, sent, refused, unsent, deleted, changed, without_messages, left, .. } =
            self.counts;
        let text = if self.args.yes {
            format!(
                "{sent} messages sent, {deleted} objects deleted; in the bucket: {refused} messages that the bus rejects, \
                 {unsent} not sent, {left} objects that cannot be sent whole, {without_messages} without messages; {changed} \
                 changed aggregates sent to the projector"
            )
        } else {
            format!(
                "{messages} messages would be sent, {left} objects cannot be sent whole, {without_messages} without messages; \
                 {changed} changed aggregates would be sent to the projector; this was a dry run, --yes sends them"
            )
        };
        let interrupted = self.context.interrupt.is_set();
        let how_to_go_on = interrupted.then_some("run it again");
        self.context.print_summary(self.args.json, &text, &self.counts, how_to_go_on)?;
        if interrupted {
            return Ok(Exit::Interrupted);
        }
        self.unsent.into_result("the other objects are in the bucket; run it again".to_owned())?;
        Ok(if refused + left == 0 { Exit::Clean } else { Exit::Findings })
    }

    fn print(&mut self, outcome: &str, object: &DiscardedObject, why: &str) -> Result<(), OperatorError> {
        let json = json!({"outcome": outcome, "object": object.key, "why": why});
        let line = output_line(self.args.json, json, format!("{outcome} {}: {why}", object.key));
        Ok(writeln!(self.context.out, "{line}")?)
    }

    fn print_row(&mut self, outcome: &str, row: &OutboxItem, why: Option<String>) -> Result<(), OperatorError> {
        let aggregate = AggregateKey::from_pk(&row.pk).map_or_else(|| row.pk.clone(), |key| key.to_string());
        let reason = why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
        let OutboxItem { message_seq, message_type, message_id, .. } = row;
        let text = format!("{outcome} {aggregate} {message_seq} {message_type} {message_id}{reason}");
        let json = json!({
            "outcome": outcome, "aggregate": aggregate, "messageSeq": message_seq, "messageType": message_type,
            "messageId": message_id, "why": why,
        });
        Ok(writeln!(self.context.out, "{}", output_line(self.args.json, json, text))?)
    }
}
