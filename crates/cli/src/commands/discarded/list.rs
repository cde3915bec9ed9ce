//! `daybook discarded list`.

use std::io::Write;

use clap::Args;
use serde_json::json;

use crate::operator::target::{STACK_HELP, StackArgs};
use crate::operator::{Exit, OperatorContext, OperatorError, output_line};

/// List the objects of the bucket of discarded records, one per line.
///
/// A line contains the object's key, the function that did not settle the records, why they were discarded, the number of records and
/// their times, and the messages in them by aggregate. Objects that a redrive or an operator deleted are not listed.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = STACK_HELP)]
pub struct DiscardedListArgs {
    /// Print JSON, one object per line.
    #[arg(long)]
    pub json: bool,
    /// Which stack.
    #[command(flatten)]
    pub stack: StackArgs,
}

/// Lists the objects.
pub(super) async fn run(args: DiscardedListArgs, context: &mut OperatorContext) -> Result<Exit, OperatorError> {
    let objects = args.stack.discarded(&context.environment).await?;
    let (mut listed, mut messages, mut unreadable) = (0, 0, 0);
    for key in objects.keys().await? {
        if context.interrupt.is_set() {
            break;
        }
        let object = objects.read(&key).await?;
        writeln!(context.out, "{}", output_line(args.json, object.json(), object.to_string()))?;
        listed += 1;
        unreadable += object.unreadable();
        messages += object.rows().len();
    }
    let text = format!("{listed} objects with {messages} messages, {unreadable} unreadable");
    let summary = json!({"objects": listed, "messages": messages, "unreadable": unreadable});
    let interrupted = context.interrupt.is_set();
    context.print_summary(args.json, &text, &summary, interrupted.then_some("run it again"))?;
    Ok(if interrupted {
        Exit::Interrupted
    } else if unreadable > 0 {
        Exit::Findings
    } else {
        Exit::Clean
    })
}
