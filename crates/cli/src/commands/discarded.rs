//! `daybook discarded`: the records that an event source mapping discarded.

use std::num::NonZeroU32;

use clap::{Args, Subcommand};
use daybook_operations::discarded::{self, DiscardedCounts, DiscardedOptions, Redriving};
use daybook_table::{AggregateKey, OutboxItem};
use serde_json::json;

use crate::operator::{Exit, OnStack, OperatorContext, OperatorError, Session};

/// Read the records that an event source mapping discarded to the bucket, and send their messages.
#[derive(Clone, Debug, Subcommand)]
pub enum DiscardedCommand {
    List(OnStack<DiscardedListArgs>),
    Redrive(OnStack<DiscardedRedriveArgs>),
}

/// List the objects of the bucket of discarded records, one per line.
///
/// A line contains the object's key, the function that did not settle the records, why they were discarded, the number of
/// records and their times, and the messages in them by aggregate. Objects that a redrive or an operator deleted are not
/// listed.
#[derive(Clone, Copy, Debug, Args)]
pub struct DiscardedListArgs {}

/// Send the messages of discarded records, with the same ids and bytes, and delete the objects whose messages the bus accepted.
///
/// With read models, the records also contain which aggregates have new events. They are sent to the projector's queue.
///
/// A dry run by default; `--yes` executes it. The objects are sent in the order of the stream, so the messages of an aggregate
/// are sent in their order. An object stays in the bucket if the bus rejects one of its messages, if one of its records cannot
/// be read, if it contains no records, or if it is of the snapshotter. Consumers that received a message before recognize it by
/// its message id.
#[derive(Clone, Debug, Args)]
pub struct DiscardedRedriveArgs {
    /// Only this object, by its key; can be repeated. Default: all.
    #[arg(long, value_name = "KEY")]
    object: Vec<String>,
    /// Send the messages; without this option, the command is a dry run.
    #[arg(long)]
    yes: bool,
    /// Delete no object.
    #[arg(long)]
    keep: bool,
    /// Maximum messages per second.
    #[arg(long, value_name = "N", default_value = "100")]
    rate: NonZeroU32,
}

impl DiscardedCommand {
    pub(super) async fn run(self, context: &mut OperatorContext) -> Result<Exit, OperatorError> {
        match self {
            Self::List(command) => command.run(context, list).await,
            Self::Redrive(command) => command.run(context, redrive).await,
        }
    }
}

async fn list(_: DiscardedListArgs, Session { stack, mut out }: Session<'_>) -> Result<Exit, OperatorError> {
    let (mut listed, mut messages, mut unreadable) = (0, 0, 0);
    let read = discarded::list(&stack, |object| {
        listed += 1;
        unreadable += object.unreadable();
        messages += object.rows().len();
        out.print(object.json(), object.to_string())
    });
    read.await?;
    let text = format!("{listed} objects with {messages} messages, {unreadable} unreadable");
    let summary = json!({"objects": listed, "messages": messages, "unreadable": unreadable});
    let next = stack.interrupt.is_set().then_some("run it again");
    Ok(out.finish(&text, &summary, next, unreadable == 0)?)
}

async fn redrive(args: DiscardedRedriveArgs, Session { stack, mut out }: Session<'_>) -> Result<Exit, OperatorError> {
    let DiscardedRedriveArgs { object: objects, yes, keep, rate } = args;
    let options = DiscardedOptions { objects, sends: yes, keeps: keep, rate };
    let redriven = discarded::redrive(&stack, &options, |object, found| {
        let (outcome, why) = match found {
            Redriving::Message(row, outcome) => {
                let aggregate = AggregateKey::from_pk(&row.pk).map_or_else(|| row.pk.clone(), |key| key.to_string());
                let why = outcome.reason();
                let reason = why.map(|why| format!(" ({why})")).unwrap_or_default();
                let OutboxItem { message_seq, message_type, message_id, .. } = row;
                let json = json!({
                    "aggregate": aggregate, "messageSeq": message_seq, "messageType": message_type,
                    "messageId": message_id, "why": why,
                });
                let text = format!("{aggregate} {message_seq} {message_type} {message_id}{reason}");
                return out.print_outcome(outcome.name(), json, &text);
            }
            Redriving::Deleted => ("deleted", "every message was sent"),
            Redriving::Left(reason) => ("left", reason),
            Redriving::WithoutMessages => (
                "without-messages",
                "it contains no messages; if it is of the snapshotter, run daybook snapshot rebuild",
            ),
        };
        let key = &object.key;
        out.print_outcome(outcome, json!({"object": key, "why": why}), &format!("{key}: {why}"))
    });
    let (counts, failure) = redriven.await?;
    let DiscardedCounts { messages, sent, rejected, unsent, deleted, changed, without_messages, left, .. } = counts;
    let text = if yes {
        format!(
            "{sent} messages sent, {deleted} objects deleted; in the bucket: {rejected} messages that the bus rejects, \
             {unsent} not sent, {left} objects that cannot be sent whole, {without_messages} without messages; {changed} \
             changed aggregates sent to the projector"
        )
    } else {
        format!(
            "{messages} messages would be sent, {left} objects cannot be sent whole, {without_messages} without messages; \
             {changed} changed aggregates would be sent to the projector; this was a dry run, --yes sends them"
        )
    };
    let next = stack.interrupt.is_set().then_some("run it again");
    let exit = out.finish(&text, &counts, next, rejected + left == 0)?;
    failure.map_or(Ok(exit), Err)
}
