//! `daybook dlq show`.

use std::io::Write;

use clap::Args;
use serde_json::Value;

use crate::operator::dead_letter_message::MessageFilterArgs;
use crate::operator::queue_reading::QueueReader;
use crate::operator::target::{STACK_HELP, StackArgs};
use crate::operator::{Exit, OperatorContext, OperatorError};

/// Show messages of the dead-letter queue in full: outbox row or stream record, error, attempts, and position in the stream.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = STACK_HELP)]
pub struct DlqShowArgs {
    /// The message id, or SQS's id of the message; `daybook dlq list` prints both.
    #[arg(value_name = "ID", required_unless_present = "unreadable", conflicts_with = "unreadable")]
    pub id: Option<String>,
    /// Show all messages that cannot be sent: they contain an unreadable record, are damaged, or are not from the relay.
    #[arg(long)]
    pub unreadable: bool,
    /// Maximum number of messages that are read. Default: all.
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Which stack.
    #[command(flatten)]
    pub stack: StackArgs,
}

/// Shows the messages.
pub(super) async fn run(args: DlqShowArgs, context: &mut OperatorContext) -> Result<Exit, OperatorError> {
    let OperatorContext { environment, out, interrupt, .. } = context;
    let queue = args.stack.dead_letters(environment).await?;
    let ids = args.id.iter().cloned().collect();
    let filter = MessageFilterArgs { id: ids, unreadable: args.unreadable, ..MessageFilterArgs::default() };
    let mut found = 0;
    let show = |digest: &_, message: &aws_sdk_sqs::types::Message| {
        if filter.selects(digest) {
            found += 1;
            let body = message.body.as_deref().unwrap_or_default();
            match serde_json::from_str::<Value>(body) {
                Ok(json) => writeln!(out, "{json:#}")?,
                Err(_) => writeln!(out, "{body}")?,
            }
        }
        Ok(())
    };
    let reading = QueueReader::new(&queue, args.limit, interrupt).read(show).await?;
    queue.put_back(&reading.messages).await;
    if interrupt.is_set() {
        return Ok(Exit::Interrupted);
    }
    let (seen, not_seen) = (reading.messages.len(), reading.not_seen);
    match args.id {
        Some(id) if found == 0 => {
            let not_seen = not_seen.text();
            eprintln!(
                "no dead-letter message has the id {id:?} among the {seen} that were received{not_seen}; `daybook dlq list` \
                 prints the ids"
            );
            Ok(Exit::Findings)
        }
        None if not_seen.any() => {
            eprintln!("{found} of {seen} dead-letter messages shown{}", not_seen.text());
            Ok(Exit::Findings)
        }
        _ => Ok(Exit::Clean),
    }
}
