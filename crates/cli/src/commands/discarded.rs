//! `daybook discarded`: the records that an event source mapping discarded.

use clap::Subcommand;
use daybook_operations::discarded::{self, DiscardedCounts, DiscardedOptions, Redriving};
use serde_json::json;

use crate::operator::{CommandFuture, Ended, NoArgs, OnStack, OperatorContext, Session};

/// Read the records that an event source mapping discarded to the bucket, and send their messages.
#[derive(Clone, Debug, Subcommand)]
pub enum DiscardedCommand {
    /// List the objects of the bucket of discarded records, one per line.
    ///
    /// A line contains the object's key, the function that did not settle the records, why they were discarded, the number of
    /// records and their times, and the messages in them by aggregate. Objects that a redrive or an operator deleted are not
    /// listed.
    List(OnStack<NoArgs>),
    Redrive(OnStack<DiscardedOptions>),
}

impl DiscardedCommand {
    pub(super) fn run(self, context: &mut OperatorContext) -> CommandFuture<'_> {
        match self {
            Self::List(command) => command.run(context, list),
            Self::Redrive(command) => command.run(context, redrive),
        }
    }
}

async fn list(_: NoArgs, Session { stack, mut out }: Session<'_>) -> Ended {
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
    out.finish(&text, &summary, stack.how_to_go_on(), unreadable == 0)
}

async fn redrive(options: DiscardedOptions, Session { stack, mut out }: Session<'_>) -> Ended {
    let redriven = discarded::redrive(&stack, &options, |object, found| {
        let (outcome, detail) = match found {
            Redriving::Message(message, outcome) => {
                return out.print_message(&outcome, message.json(), &message.to_string());
            }
            Redriving::Deleted => ("deleted", "every message was sent"),
            Redriving::Left(reason) => ("left", reason),
            Redriving::WithoutMessages => (
                "without-messages",
                "it contains no messages; if it is of the snapshotter, run daybook snapshot rebuild",
            ),
        };
        let key = &object.key;
        out.print_outcome(outcome, json!({"object": key, "detail": detail}), &format!("{key}: {detail}"))
    });
    let (counts, failure) = redriven.await?;
    let DiscardedCounts { messages, sent, rejected, unsent, deleted, changed, without_messages, left, .. } = counts;
    let text = if options.yes {
        format!(
            "{sent} messages sent, {deleted} objects deleted; in the bucket: {rejected} messages that the bus rejects, \
             {unsent} not sent, {left} objects that cannot be sent whole, {without_messages} without messages; {changed} \
             changed aggregates sent to their queues"
        )
    } else {
        format!(
            "{messages} messages would be sent, {left} objects cannot be sent whole, {without_messages} without messages; \
             {changed} changed aggregates would be sent to their queues; this was a dry run, --yes sends them"
        )
    };
    let exit = out.finish(&text, &counts, stack.how_to_go_on(), rejected + left == 0)?;
    failure.map_or(Ok(exit), Err)
}
