//! `daybook dlq stats`.

use std::collections::BTreeMap;
use std::io::Write;

use clap::Args;
use jiff::{Timestamp, Unit};
use serde_json::json;

use crate::operator::dead_letter_message::{DeadLetterMessage, MessageFilterArgs};
use crate::operator::queue_reading::QueueReader;
use crate::operator::target::{STACK_HELP, StackArgs};
use crate::operator::{Exit, OperatorContext, OperatorError, output_line};

/// Count the messages of the dead-letter queue by error, by aggregate type, by message type and by age.
///
/// The age is the time since SQS received the message; SQS deletes a message after 14 days. If SQS counts more messages than the
/// command received, it prints how many are missing, and ends with status 1.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = STACK_HELP)]
pub struct DlqStatsArgs {
    /// Which messages.
    #[command(flatten)]
    pub filter: MessageFilterArgs,
    /// Print JSON, one object per line.
    #[arg(long)]
    pub json: bool,
    /// Which stack.
    #[command(flatten)]
    pub stack: StackArgs,
}

/// Ages of messages, each with the hours below which it applies.
const AGES: [(i64, &str); 4] = [(1, "under-1h"), (24, "1h-to-1d"), (7 * 24, "1d-to-7d"), (i64::MAX, "over-7d")];

/// The value of a message that contains no outbox message.
const UNSENDABLE: &str = "unsendable";

/// Counts the selected messages.
pub(super) async fn run(args: DlqStatsArgs, context: &mut OperatorContext) -> Result<Exit, OperatorError> {
    let queue = args.stack.dead_letters(&context.environment).await?;
    let reading = QueueReader::new(&queue, None, &context.interrupt).read(|_, _| Ok(())).await?;
    queue.put_back(&reading.messages).await;
    let (seen, not_seen, now) = (reading.messages.len(), reading.not_seen, Timestamp::now());
    let mut counts: BTreeMap<(usize, &str), usize> = BTreeMap::new();
    let selected: Vec<_> = reading.messages.iter().filter(|message| args.filter.selects(message)).collect();
    for message in &selected {
        for (order, value) in values(message, now).into_iter().enumerate() {
            *counts.entry((order, value)).or_default() += 1;
        }
    }
    for ((order, value), messages) in &counts {
        let by = ["error", "aggregate-type", "message-type", "age"][*order];
        let json = json!({"by": by, "value": value, "messages": messages});
        writeln!(context.out, "{}", output_line(args.json, json, format!("{by} {value} {messages}")))?;
    }
    let oldest = selected.iter().filter_map(|message| message.queued_at).min().map(|oldest| oldest.to_string());
    let age = oldest.as_ref().map(|oldest| format!(", the oldest of {oldest}")).unwrap_or_default();
    let text = format!("{} of {seen} dead-letter messages counted{age}{}", selected.len(), not_seen.text());
    let summary = json!({"messages": selected.len(), "seen": seen, "oldest": oldest, "notSeen": not_seen});
    let interrupted = context.interrupt.is_set();
    context.print_summary(args.json, &text, &summary, interrupted.then_some("run it again"))?;
    Ok(not_seen.exit(interrupted))
}

/// The values by which a message is counted.
fn values(message: &DeadLetterMessage, now: Timestamp) -> [&str; 4] {
    let age = message.queued_at.and_then(|queued_at| now.since((Unit::Hour, queued_at)).ok());
    let hours = age.map_or(0, |age| i64::from(age.get_hours()));
    let age = AGES.iter().find(|(below, _)| hours < *below).map_or("unknown", |(_, name)| name);
    match &message.content {
        Ok(content) => [&content.error_code, &content.aggregate.aggregate_type, &content.message_type, age],
        Err(_) => [UNSENDABLE, UNSENDABLE, UNSENDABLE, age],
    }
}
