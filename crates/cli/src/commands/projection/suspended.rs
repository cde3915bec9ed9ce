//! `daybook projection suspended`.

use std::io::Write;

use clap::Args;
use serde_json::json;

use super::named::views_error;
use crate::operator::call_usage::CallMeter;
use crate::operator::target::{STACK_HELP, StackArgs};
use crate::operator::{Exit, OperatorContext, OperatorError, output_line};

/// List the aggregates that are suspended in a view, because an event of theirs cannot be folded into it.
///
/// Reads the whole views table. The exit status is 1 if there are any.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = STACK_HELP)]
pub struct ProjectionSuspendedArgs {
    /// Print JSON, one object per line.
    #[arg(long)]
    pub json: bool,
    /// Which stack.
    #[command(flatten)]
    pub stack: StackArgs,
}

/// Prints them.
pub(super) async fn run(args: ProjectionSuspendedArgs, context: &mut OperatorContext) -> Result<Exit, OperatorError> {
    let views = args.stack.views(&context.environment, &CallMeter::default()).await?;
    let mut suspended = views.suspended().await.map_err(views_error("list suspended aggregates"))?;
    suspended.sort_by(|one, other| (&one.view, &one.aggregate).cmp(&(&other.view, &other.aggregate)));
    for found in &suspended {
        let (view, aggregate, seq_num, reason) = (&found.view, &found.aggregate, found.seq_num, &found.reason);
        let json = json!({
            "projection": view.name, "version": view.version, "aggregate": aggregate.to_string(), "seqNum": seq_num,
            "reason": reason,
        });
        let text = format!("{view} {aggregate} suspended after event {seq_num}: {reason}");
        writeln!(context.out, "{}", output_line(args.json, json, text))?;
    }
    let counts = json!({ "suspended": suspended.len() });
    context.print_summary(args.json, &format!("{} aggregates are suspended", suspended.len()), &counts, None)?;
    Ok(if suspended.is_empty() { Exit::Clean } else { Exit::Findings })
}
