//! `daybook dlq show`.

use std::io::Write;

use clap::Args;
use serde_json::Value;

use crate::operator::dead_letter_message::MessageFilterArgs;
use crate::operator::dead_letter_queue::READ_VISIBILITY_TIMEOUT;
use crate::operator::target::{QueueArgs, STACK_HELP};
use crate::operator::{Exit, OperatorContext, OperatorError};

/// Show one message of the dead-letter queue in full: outbox row or stream record, error, attempts, and position in the stream.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = STACK_HELP)]
pub struct DlqShowArgs {
    /// The message id, or SQS's id of the message; `daybook dlq list` prints both.
    #[arg(value_name = "ID")]
    pub id: String,
    /// Maximum number of messages that are read.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub limit: usize,
    /// Which queue.
    #[command(flatten)]
    pub queue: QueueArgs,
}

/// Shows the message.
///
/// # Errors
///
/// When the queue cannot be read.
pub(super) async fn run(args: DlqShowArgs, context: &mut OperatorContext) -> Result<Exit, OperatorError> {
    let queue = args.queue.connect(&context.environment).await?;
    let messages = queue.receive(args.limit, READ_VISIBILITY_TIMEOUT, &context.interrupt).await?;
    queue.put_back(&messages).await;
    let filter = MessageFilterArgs { id: vec![args.id.clone()], ..MessageFilterArgs::default() };
    let found: Vec<_> = messages.iter().filter(|message| filter.selects(message)).collect();
    for message in &found {
        match serde_json::from_str::<Value>(&message.body) {
            Ok(json) => writeln!(context.out, "{json:#}")?,
            Err(_) => writeln!(context.out, "{}", message.body)?,
        }
    }
    if !found.is_empty() {
        return Ok(Exit::Clean);
    }
    if context.interrupt.is_set() {
        return Ok(Exit::Interrupted);
    }
    eprintln!(
        "no dead-letter message has the id {:?} among the {} that were received; `daybook dlq list` prints the ids, and another \
         run may receive more",
        args.id,
        messages.len()
    );
    Ok(Exit::Findings)
}
