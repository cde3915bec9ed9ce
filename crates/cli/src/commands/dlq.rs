//! `daybook dlq`: the messages that the relay could not send.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use clap::{Args, Subcommand};
use daybook_operations::dead_letters::{self, RedriveCounts, RedriveOptions};
use daybook_operations::messages::{DeadLetterMessage, MessageFilter};
use daybook_operations::queue_reading::NotSeen;
use daybook_operations::stack::DEAD_LETTERS;
use jiff::{Timestamp, Unit};
use serde_json::{Value, json};

use crate::operator::{CommandFuture, Ended, Exit, OnStack, OperatorContext, OperatorError, Session};

/// Read the messages that the relay could not send, send them again, or delete them.
///
/// SQS can only read a message by receiving it. These commands therefore hide the messages from other readers while they read,
/// and increase the receive counts. At the end they make the messages visible again; after a killed run, the messages become
/// visible when their visibility time-out ends. Messages that another reader has received cannot be read. If SQS counts more
/// messages than a run received, the run prints how many it did not see, and ends with status 1.
#[derive(Clone, Debug, Subcommand)]
pub enum DlqCommand {
    List(OnStack<DlqListArgs>),
    Show(OnStack<DlqShowArgs>),
    /// Count the messages of the dead-letter queue by error, by aggregate type, by message type and by age.
    ///
    /// The age is the time since SQS received the message; SQS deletes a message after 14 days. If SQS counts more messages than the
    /// command received, it prints how many are missing, and ends with status 1.
    Stats(OnStack<MessageFilter>),
    Export(OnStack<DlqExportArgs>),
    Redrive(OnStack<RedriveOptions>),
    Delete(OnStack<DlqDeleteArgs>),
}

impl DlqCommand {
    pub(super) fn run(self, context: &mut OperatorContext) -> CommandFuture<'_> {
        match self {
            Self::List(command) => command.run(context, list),
            Self::Show(command) => command.run(context, show),
            Self::Stats(command) => command.run(context, stats),
            Self::Export(command) => command.run(context, export),
            Self::Redrive(command) => command.run(context, redrive),
            Self::Delete(command) => command.run(context, delete),
        }
    }
}

/// List the messages of the dead-letter queue, one per line, by aggregate and number.
///
/// A line contains SQS's id, the aggregate, the message's number, type and id, and the error with which it failed. The command
/// hides the messages from other readers while it reads, and then makes them visible again; it deletes none. If SQS counts
/// more messages than the command received, it prints how many are missing, and ends with status 1.
#[derive(Clone, Debug, Args)]
pub struct DlqListArgs {
    #[command(flatten)]
    filter: MessageFilter,
    /// Maximum number of messages that are read. Default: all.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

/// Show messages of the dead-letter queue in full: outbox row or stream record, error, attempts, and position in the stream.
#[derive(Clone, Debug, Args)]
pub struct DlqShowArgs {
    /// The message id, or SQS's id of the message; `daybook dlq list` prints both.
    #[arg(value_name = "ID", required_unless_present = "unreadable", conflicts_with = "unreadable")]
    id: Option<String>,
    /// Show all messages that cannot be sent: they contain an unreadable record, are damaged, or are not from the relay.
    #[arg(long)]
    unreadable: bool,
    /// Maximum number of messages that are read. Default: all.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

/// Write messages of the dead-letter queue to a file, one JSON object per line, with body and attributes.
///
/// Use it before `dlq delete`, so that nothing is lost. The body is the text that SQS holds, unchanged. The messages stay in
/// the queue. A run that ends early leaves a file of complete lines.
#[derive(Clone, Debug, Args)]
pub struct DlqExportArgs {
    /// The file. It must not exist.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    filter: MessageFilter,
}

/// Delete messages of the dead-letter queue.
///
/// A dry run by default; `--yes` deletes them. The messages must be selected: by their ids, by options, or by both. Write them
/// to a file with `daybook dlq export` first: SQS cannot restore a deleted message.
#[derive(Clone, Debug, Args)]
pub struct DlqDeleteArgs {
    /// The message ids, or SQS's ids of the messages; `daybook dlq list` prints both.
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    #[command(flatten)]
    filter: MessageFilter,
    /// Delete the messages; without this option, the command is a dry run.
    #[arg(long)]
    yes: bool,
}

async fn list(args: DlqListArgs, Session { stack, mut out }: Session<'_>) -> Ended {
    let reading = dead_letters::read(&stack, &args.filter, args.limit, |_| Ok(())).await?;
    let (messages, seen, before, not_seen) = (reading.messages, reading.seen, reading.before, reading.not_seen);
    messages.iter().try_for_each(|message| out.print(message.json(), message.to_string()))?;
    let listed = messages.len();
    let unsendable = messages.iter().filter(|message| message.content.is_err()).count();
    let text = format!(
        "{listed} of {seen} dead-letter messages listed, {unsendable} of them unsendable; SQS counts about {} visible and {} \
         that other readers have received{}",
        before.visible,
        before.hidden,
        not_seen_text(not_seen)
    );
    let summary = json!({
        "messages": listed, "seen": seen, "unsendable": unsendable, "waiting": before.visible, "hidden": before.hidden,
        "notSeen": not_seen,
    });
    out.finish(&text, &summary, stack.how_to_go_on(), !not_seen.any())
}

async fn show(args: DlqShowArgs, Session { stack, mut out }: Session<'_>) -> Ended {
    let ids = args.id.iter().cloned().collect();
    let filter = MessageFilter { ids, unreadable: args.unreadable, ..MessageFilter::default() };
    let mut found = 0;
    let show = |message: dead_letters::ReadMessage<'_>| {
        found += 1;
        Ok(match serde_json::from_str::<Value>(message.body()) {
            Ok(json) => out.print(json.clone(), format!("{json:#}")),
            Err(_) => out.print_text(message.body()),
        }?)
    };
    let reading = dead_letters::read(&stack, &filter, args.limit, show).await?;
    if stack.interrupt.is_cancelled() {
        return Ok(Exit::Interrupted);
    }
    let (seen, not_seen) = (reading.seen, not_seen_text(reading.not_seen));
    match args.id {
        Some(id) if found == 0 => {
            eprintln!(
                "no dead-letter message has the id {id:?} among the {seen} that were received{not_seen}; `daybook dlq list` \
                 prints the ids"
            );
            Ok(Exit::Findings)
        }
        None if reading.not_seen.any() => {
            eprintln!("{found} of {seen} dead-letter messages shown{not_seen}");
            Ok(Exit::Findings)
        }
        _ => Ok(Exit::Clean),
    }
}

/// Ages of messages, each with the hours below which it applies.
const AGES: [(i64, &str); 4] = [(1, "under-1h"), (24, "1h-to-1d"), (7 * 24, "1d-to-7d"), (i64::MAX, "over-7d")];

/// The value of a message that contains no outbox message.
const UNSENDABLE: &str = "unsendable";

async fn stats(filter: MessageFilter, Session { stack, mut out }: Session<'_>) -> Ended {
    let reading = dead_letters::read(&stack, &filter, None, |_| Ok(())).await?;
    let (selected, seen, not_seen, now) = (&reading.messages, reading.seen, reading.not_seen, Timestamp::now());
    let mut counts: BTreeMap<(usize, &str), usize> = BTreeMap::new();
    for message in selected {
        for (order, value) in values(message, now).into_iter().enumerate() {
            *counts.entry((order, value)).or_default() += 1;
        }
    }
    for ((order, value), messages) in &counts {
        let by = ["error", "aggregate-type", "message-type", "age"][*order];
        let json = json!({"by": by, "value": value, "messages": messages});
        out.print(json, format!("{by} {value} {messages}"))?;
    }
    let oldest = selected.iter().filter_map(|message| message.queued_at).min().map(|oldest| oldest.to_string());
    let age = oldest.as_ref().map(|oldest| format!(", the oldest of {oldest}")).unwrap_or_default();
    let text = format!("{} of {seen} dead-letter messages counted{age}{}", selected.len(), not_seen_text(not_seen));
    let summary = json!({"messages": selected.len(), "seen": seen, "oldest": oldest, "notSeen": not_seen});
    out.finish(&text, &summary, stack.how_to_go_on(), !not_seen.any())
}

/// The values by which a message is counted.
fn values(message: &DeadLetterMessage, now: Timestamp) -> [&str; 4] {
    let age = message.queued_at.and_then(|queued_at| now.since((Unit::Hour, queued_at)).ok());
    let hours = age.map_or(0, |age| i64::from(age.get_hours()));
    let age = AGES.iter().find(|(below, _)| hours < *below).map_or("unknown", |(_, name)| name);
    match &message.content {
        Ok(content) => [&content.error_code, &content.aggregate.aggregate_type, &content.label.name, age],
        Err(_) => [UNSENDABLE, UNSENDABLE, UNSENDABLE, age],
    }
}

async fn export(args: DlqExportArgs, Session { stack, mut out }: Session<'_>) -> Ended {
    let path = args.file.display();
    let failed = |source| OperatorError::File { doing: format!("cannot write the file {path}"), source };
    // A wrong setting creates no file.
    stack.queue(DEAD_LETTERS).await?;
    // Dead-letter messages may contain personal data, and a file that exists may be an earlier export.
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = BufWriter::new(options.open(&args.file).map_err(failed)?);
    let mut exported = 0;
    let export = |message: dead_letters::ReadMessage<'_>| {
        exported += 1;
        writeln!(file, "{}", message.json()).map_err(failed)
    };
    let reading = dead_letters::read(&stack, &args.filter, None, export).await?;
    // `dlq delete` may follow.
    let file = file.into_inner().map_err(|error| failed(error.into_error()))?;
    file.sync_all().map_err(failed)?;
    let (seen, not_seen) = (reading.seen, reading.not_seen);
    let text = format!("{exported} of {seen} dead-letter messages exported to {path}{}", not_seen_text(not_seen));
    let summary = json!({"messages": exported, "seen": seen, "notSeen": not_seen});
    let next = stack.interrupt.is_cancelled().then_some("run it again with another file");
    out.finish(&text, &summary, next, !not_seen.any())
}

async fn redrive(options: RedriveOptions, Session { stack, mut out }: Session<'_>) -> Ended {
    let redriven = dead_letters::redrive(&stack, &options, |message, outcome| {
        let text = message.content.as_ref().map_or_else(|_| message.to_string(), |content| content.label.to_string());
        out.print_message(outcome, message.json(), &text)
    });
    let (counts, failure) = redriven.await?;
    let RedriveCounts { would_send, sent, rejected, not_deleted, unsendable, unsent, not_seen, .. } = counts;
    let not_seen_text = not_seen_text(not_seen);
    let text = if options.yes {
        let except =
            if not_deleted > 0 { format!(", except {not_deleted} that SQS did not delete") } else { String::new() };
        format!(
            "{sent} messages sent and deleted from the queue{except}; in the queue: {rejected} that the bus rejects, \
             {unsendable} unsendable, {unsent} not sent{not_seen_text}"
        )
    } else {
        format!("{would_send} messages would be sent{not_seen_text}; this was a dry run, --yes sends them")
    };
    let exit = out.finish(&text, &counts, stack.how_to_go_on(), counts.is_clean())?;
    failure.map_or(Ok(exit), Err)
}

async fn delete(args: DlqDeleteArgs, Session { stack, mut out }: Session<'_>) -> Ended {
    let DlqDeleteArgs { mut ids, mut filter, yes } = args;
    filter.ids.append(&mut ids);
    let deletion = dead_letters::delete(&stack, &filter, yes, |message, outcome| {
        out.print_message(outcome, message.json(), &message.to_string())
    });
    let dead_letters::Deletion { selected, deleted, not_deleted, not_found, not_seen } = deletion.await?;
    not_found.iter().for_each(|id| eprintln!("no dead-letter message has the id {id:?}"));
    let text = if yes {
        format!("{deleted} messages deleted, {not_deleted} that SQS did not delete")
    } else {
        format!("{selected} messages would be deleted; this was a dry run, --yes deletes them")
    };
    let text = format!("{text}; {} ids not found{}", not_found.len(), not_seen_text(not_seen));
    let summary = json!({
        "dryRun": !yes, "selected": selected, "deleted": deleted, "notDeleted": not_deleted, "notFound": not_found,
        "notSeen": not_seen,
    });
    // Messages that were not seen may be selected too, unless each selected one was named and found.
    let are_all_found = !filter.ids.is_empty() && not_found.is_empty();
    let is_clean = not_deleted == 0 && not_found.is_empty() && (!not_seen.any() || are_all_found);
    out.finish(&text, &summary, stack.how_to_go_on(), is_clean)
}

/// The end of a summary; empty if every message was received.
fn not_seen_text(NotSeen { hidden, not_received }: NotSeen) -> String {
    let mut text = String::new();
    if not_received > 0 {
        text += &format!("; SQS counts about {not_received} more that this run did not receive");
    }
    if hidden > 0 {
        text += &format!("; about {hidden} more are hidden because another reader received them");
    }
    text
}
