//! `daybook events`.

use clap::Args;
use daybook_operations::reads::{EventPage, ReadResult, StackReads, event_text};
use daybook_operations::selection::AggregateName;
use serde_json::json;

use crate::operator::output::Output;
use crate::operator::{Exit, OperatorError, Session};

/// The events of a page. The API's maximum is 1,000.
const PAGE: u64 = 100;

/// Print the events of an aggregate in order, one per line.
///
/// With `--json`, a line is an event as `GET /TYPE/ID/events` of the API returns it, with `meta`. The events of a deleted
/// aggregate are printed too. The aggregate types' rules about callers do not apply: an operator who can read the table can
/// read every aggregate.
#[derive(Clone, Debug, Args)]
pub struct EventsArgs {
    /// The aggregate.
    #[arg(value_name = "TYPE/ID")]
    aggregate: AggregateName,
    /// Begin after the event with this number.
    #[arg(long, value_name = "N", default_value_t = 0)]
    after: u64,
    /// Maximum number of events. Default: all.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
}

pub(super) async fn run(args: EventsArgs, Session { stack, mut out }: Session<'_>) -> Result<Exit, OperatorError> {
    let reads = StackReads::connect(&stack, &[]).await?;
    let AggregateName(key) = &args.aggregate;
    let (mut after, mut printed, mut unreadable, mut more) = (args.after, 0, 0, true);
    while more && !stack.interrupt.is_set() {
        let left = args.limit.map_or(PAGE, |limit| PAGE.min(limit - printed));
        if left == 0 {
            break;
        }
        let page = match reads.events(&format!("/{key}/events?after={after}&limit={left}")).await? {
            ReadResult::Found(page) => page,
            ReadResult::Missing(problem) => {
                if out.as_json {
                    out.print_text(&problem.body)?;
                }
                eprintln!("{key}: {}", problem.detail);
                return Ok(Exit::Findings);
            }
        };
        print_page(&mut out, &page)?;
        printed += page.events.len() as u64;
        unreadable += page.unreadable.len();
        after = page.cursor.as_u64().unwrap_or(after);
        more = page.has_next;
    }
    let interrupted = stack.interrupt.is_set() && more;
    let how_to_go_on = more.then(|| format!("go on with --after {after}"));
    let text = format!("{printed} events, {unreadable} unreadable");
    let summary = json!({"events": printed, "unreadable": unreadable});
    out.print_summary(&text, &summary, how_to_go_on.as_deref())?;
    Ok(Exit::of(interrupted, unreadable == 0))
}

/// Prints the events of a page, and its rows that cannot be read.
pub(super) fn print_page(out: &mut Output<'_>, page: &EventPage) -> Result<(), OperatorError> {
    for event in &page.events {
        // The unchanged JSON of the API.
        let text = if out.as_json { event.get().to_owned() } else { event_text(event)? };
        out.print_text(&text)?;
    }
    let print = |row| out.print(json!({ "unreadable": row }), format!("unreadable {row}"));
    Ok(page.unreadable.iter().try_for_each(print)?)
}
