//! `daybook dlq delete`.

use std::io::Write;

use clap::Args;
use serde_json::json;

use crate::operator::dead_letter_message::{DeadLetterMessage, MessageFilterArgs};
use crate::operator::queue_reading::QueueReader;
use crate::operator::target::{STACK_HELP, StackArgs};
use crate::operator::{Exit, OperatorContext, OperatorError, output_line};

/// Maximum messages that are deleted before the results are printed.
const BATCH_SIZE: usize = 100;

/// Delete messages of the dead-letter queue.
///
/// A dry run by default; `--yes` deletes them. The messages must be selected: by their ids, by options, or by both. Write them
/// to a file with `daybook dlq export` first: SQS cannot restore a deleted message.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = STACK_HELP)]
pub struct DlqDeleteArgs {
    /// The message ids, or SQS's ids of the messages; `daybook dlq list` prints both.
    #[arg(value_name = "ID")]
    pub ids: Vec<String>,
    /// Which messages.
    #[command(flatten)]
    pub filter: MessageFilterArgs,
    /// Delete the messages; without this option, the command is a dry run.
    #[arg(long)]
    pub yes: bool,
    /// Print JSON, one object per line.
    #[arg(long)]
    pub json: bool,
    /// Which stack.
    #[command(flatten)]
    pub stack: StackArgs,
}

/// Deletes the selected messages, or lists them.
pub(super) async fn run(mut args: DlqDeleteArgs, context: &mut OperatorContext) -> Result<Exit, OperatorError> {
    args.filter.id.append(&mut args.ids);
    if args.filter.is_empty() {
        let text = "no messages are selected: give their ids, or an option such as --unreadable or --error-code";
        return Err(OperatorError::Usage(text.to_owned()));
    }
    let queue = args.stack.dead_letters(&context.environment).await?;
    let reading = QueueReader::new(&queue, None, &context.interrupt).read(|_, _| Ok(())).await?;
    let not_seen = reading.not_seen;
    let is_selected = |message: &DeadLetterMessage| args.filter.selects(message);
    let (mut selected, others): (Vec<_>, _) = reading.messages.into_iter().partition(is_selected);
    selected.sort_by_cached_key(DeadLetterMessage::order);
    queue.put_back(&others).await;
    let not_found: Vec<_> =
        args.filter.id.iter().filter(|id| !selected.iter().any(|message| message.has_id(id))).collect();

    let (mut deleted, mut not_deleted, mut written) = (0, 0, Ok(()));
    let out = &mut context.out;
    let mut print = |outcome: &str, message: &DeadLetterMessage, why: Option<&str>| {
        let reason = why.map(|why| format!(" ({why})")).unwrap_or_default();
        let mut json = message.json();
        json["outcome"] = json!(outcome);
        json["why"] = json!(why);
        writeln!(out, "{}", output_line(args.json, json, format!("{outcome} {message}{reason}")))
    };
    let mut left = selected.as_slice();
    while args.yes && written.is_ok() && !left.is_empty() && !context.interrupt.is_set() {
        let (batch, rest) = left.split_at(left.len().min(BATCH_SIZE));
        left = rest;
        let failed = queue.delete(batch).await;
        for message in batch {
            let why = failed.iter().find(|(failed, _)| failed.sqs_id == message.sqs_id).map(|(_, why)| why.as_str());
            let (count, outcome) =
                if why.is_some() { (&mut not_deleted, "not-deleted") } else { (&mut deleted, "deleted") };
            *count += 1;
            written = written.and_then(|()| print(outcome, message, why));
        }
    }
    queue.put_back(left).await;
    if !args.yes {
        written = left.iter().try_for_each(|message| print("would-delete", message, None));
    }
    written?;
    not_found.iter().for_each(|id| eprintln!("no dead-letter message has the id {id:?}"));

    let text = if args.yes {
        format!("{deleted} messages deleted, {not_deleted} that SQS did not delete")
    } else {
        format!("{} messages would be deleted; this was a dry run, --yes deletes them", selected.len())
    };
    let text = format!("{text}; {} ids not found{}", not_found.len(), not_seen.text());
    let summary = json!({
        "dryRun": !args.yes, "selected": selected.len(), "deleted": deleted, "notDeleted": not_deleted,
        "notFound": not_found, "notSeen": not_seen,
    });
    let interrupted = context.interrupt.is_set();
    context.print_summary(args.json, &text, &summary, interrupted.then_some("run it again"))?;
    // Messages that were not seen may be selected too, unless each selected one was named and found.
    let are_all_found = !args.filter.id.is_empty() && not_found.is_empty();
    Ok(if interrupted {
        Exit::Interrupted
    } else if not_deleted > 0 || !not_found.is_empty() || (not_seen.any() && !are_all_found) {
        Exit::Findings
    } else {
        Exit::Clean
    })
}
