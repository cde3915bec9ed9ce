//! `daybook events`.

use std::io::Write;

use clap::Args;
use serde_json::json;

use crate::operator::selection::AggregateName;
use crate::operator::stack_reads::{ReadResult, StackReads, event_line};
use crate::operator::target::{STACK_HELP, StackArgs};
use crate::operator::{Exit, OperatorContext, OperatorError, output_line};

/// The events of a page. The API's maximum is 1,000.
const PAGE: u64 = 100;

/// Print the events of an aggregate in order, one per line.
///
/// With `--json`, a line is an event as `GET /TYPE/ID/events` of the API returns it, with `meta`. The events of a deleted
/// aggregate are printed too. The aggregate types' rules about callers do not apply: an operator who can read the table can
/// read every aggregate.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = STACK_HELP)]
pub struct EventsArgs {
    /// The aggregate.
    #[arg(value_name = "TYPE/ID")]
    pub aggregate: AggregateName,
    /// Begin after the event with this number.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub after: u64,
    /// Maximum number of events. Default: all.
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// Print JSON, one object per line.
    #[arg(long)]
    pub json: bool,
    /// Which stack.
    #[command(flatten)]
    pub stack: StackArgs,
}

/// Prints the events.
pub(super) async fn run(args: EventsArgs, context: &mut OperatorContext) -> Result<Exit, OperatorError> {
    let reads = StackReads::connect(&args.stack, &[], context).await?;
    let AggregateName(key) = &args.aggregate;
    let (mut after, mut printed, mut unreadable, mut more) = (args.after, 0, 0, true);
    while more && !context.interrupt.is_set() {
        let left = args.limit.map_or(PAGE, |limit| PAGE.min(limit - printed));
        if left == 0 {
            break;
        }
        let page = match reads.events(&format!("/{key}/events?after={after}&limit={left}")).await? {
            ReadResult::Found(page) => page,
            ReadResult::Missing(problem) => {
                if args.json {
                    writeln!(context.out, "{}", problem.body)?;
                }
                eprintln!("{key}: {}", problem.detail);
                return Ok(Exit::Findings);
            }
        };
        for event in &page.events {
            writeln!(context.out, "{}", event_line(args.json, event)?)?;
        }
        for row in &page.unreadable {
            let line = output_line(args.json, json!({ "unreadable": row }), format!("unreadable {row}"));
            writeln!(context.out, "{line}")?;
        }
        printed += page.events.len() as u64;
        unreadable += page.unreadable.len();
        after = page.cursor.as_u64().unwrap_or(after);
        more = page.has_next;
    }
    let interrupted = context.interrupt.is_set() && more;
    let how_to_go_on = more.then(|| format!("go on with --after {after}"));
    let text = format!("{printed} events, {unreadable} unreadable");
    let summary = json!({"events": printed, "unreadable": unreadable});
    context.print_summary(args.json, &text, &summary, how_to_go_on.as_deref())?;
    Ok(if interrupted {
        Exit::Interrupted
    } else if unreadable > 0 {
        Exit::Findings
    } else {
        Exit::Clean
    })
}
