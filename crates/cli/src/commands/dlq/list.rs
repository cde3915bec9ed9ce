//! `daybook dlq list`.

use std::io::Write;

use clap::Args;
use serde_json::json;

use crate::operator::dead_letter_message::MessageFilterArgs;
use crate::operator::dead_letter_queue::READ_VISIBILITY_TIMEOUT;
use crate::operator::target::{QueueArgs, STACK_HELP};
use crate::operator::{Exit, OperatorContext, OperatorError, output_line};

/// List the messages of the dead-letter queue, one per line, by aggregate and number.
///
/// A line contains SQS's id, the aggregate, the message's number, type and id, and the error with which it failed. The command
/// hides the messages from other readers while it reads, and then makes them visible again; it deletes none. One run may miss
/// messages, SQS's counts are approximate, and messages that another reader has just received are not visible.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = STACK_HELP)]
pub struct DlqListArgs {
    /// Which messages.
    #[command(flatten)]
    pub filter: MessageFilterArgs,
    /// Maximum number of messages that are read.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub limit: usize,
    /// Print JSON, one object per line.
    #[arg(long)]
    pub json: bool,
    /// Which queue.
    #[command(flatten)]
    pub queue: QueueArgs,
}

/// Lists the selected messages.
///
/// # Errors
///
/// When the queue cannot be read.
pub(super) async fn run(args: DlqListArgs, context: &mut OperatorContext) -> Result<Exit, OperatorError> {
    let queue = args.queue.connect(&context.environment).await?;
    let counts = queue.counts().await?;
    let mut messages = queue.receive(args.limit, READ_VISIBILITY_TIMEOUT, &context.interrupt).await?;
    queue.put_back(&messages).await;
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
         that other readers have received",
        counts.visible, counts.hidden
    );
    let summary = json!({
        "messages": listed, "seen": seen, "unsendable": unsendable, "waiting": counts.visible, "hidden": counts.hidden,
    });
    context.print_summary(args.json, &text, &summary, None)?;
    Ok(if context.interrupt.is_set() { Exit::Interrupted } else { Exit::Clean })
}
