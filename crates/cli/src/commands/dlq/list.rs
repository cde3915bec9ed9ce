//! `daybook dlq list`.

use std::io::Write;

use clap::Args;
use serde_json::json;

use crate::operator::dead_letter_message::MessageFilterArgs;
use crate::operator::queue_reading::QueueReader;
use crate::operator::target::{STACK_HELP, StackArgs};
use crate::operator::{Exit, OperatorContext, OperatorError, output_line};

/// List the messages of the dead-letter queue, one per line, by aggregate and number.
///
/// A line contains SQS's id, the aggregate, the message's number, type and id, and the error with which it failed. The command
/// hides the messages from other readers while it reads, and then makes them visible again; it deletes none. If SQS counts
/// more messages than the command received, it prints how many are missing, and ends with status 1.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = STACK_HELP)]
pub struct DlqListArgs {
    /// Which messages.
    #[command(flatten)]
    pub filter: MessageFilterArgs,
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

/// Lists the selected messages.
pub(super) async fn run(args: DlqListArgs, context: &mut OperatorContext) -> Result<Exit, OperatorError> {
    let queue = args.stack.dead_letters(&context.environment).await?;
    let reading = QueueReader::new(&queue, args.limit, &context.interrupt).read(|_, _| Ok(())).await?;
    queue.put_back(&reading.messages).await;
    let (mut messages, before, not_seen) = (reading.messages, reading.before, reading.not_seen);
    let seen = messages.len();
    messages.retain(|message| args.filter.selects(message));
    messages.sort_by_cached_key(|message| message.order());
    for message in &messages {
        writeln!(context.out, "{}", output_line(args.json, message.json(), message.to_string()))?;
    }
    let listed = messages.len();
    let unsendable = messages.iter().filter(|message| message.content.is_err()).count();
    let text = format!(
        "{listed} of {seen} dead-letter messages listed, {unsendable} of them unsendable; SQS counts about {} visible and {} \
         that other readers have received{}",
        before.visible,
        before.hidden,
        not_seen.text()
    );
    let summary = json!({
        "messages": listed, "seen": seen, "unsendable": unsendable, "waiting": before.visible, "hidden": before.hidden,
        "notSeen": not_seen,
    });
    let interrupted = context.interrupt.is_set();
    context.print_summary(args.json, &text, &summary, interrupted.then_some("run it again"))?;
    Ok(not_seen.exit(interrupted))
}
