//! The output of commands that mark rows of the reactor.

use std::io;

use daybook_event_store::UnreadableRow;
use daybook_operations::deadlines::{MarkCounts, Marked};
use daybook_table::keys::partition_name;
use serde_json::json;

use crate::operator::output::Output;
use crate::operator::{Ended, Session};

/// The outcome of a row, in the words of the command: what it would do, and what it has done.
pub(super) fn outcome([would, done, _]: [&'static str; 3], marked: Marked) -> &'static str {
    match marked {
        Marked::WouldMark => would,
        Marked::Marked => done,
        Marked::Changed => "changed",
    }
}

/// Ends a command that has marked rows: `2 failed deadlines, 0 unreadable; this was a dry run, --yes retries them`.
pub(super) fn finish(
    [_, done, doing]: [&'static str; 3],
    [state, rows]: [&str; 2],
    counts: &MarkCounts,
    Session { stack, mut out }: Session<'_>,
) -> Ended {
    let &MarkCounts { dry_run, selected, marked, changed, unreadable, more } = counts;
    let text = match dry_run {
        true => {
            format!("{selected} {state} {rows}, {unreadable} unreadable; this was a dry run, --yes {doing} them")
        }
        false => format!("{marked} {rows} {done}; {changed} were changed meanwhile, {unreadable} are unreadable"),
    };
    let is_clean = changed + unreadable == 0 && (dry_run || !more);
    out.finish(&(text + more_text(more)), counts, stack.how_to_go_on(), is_clean)
}

pub(super) fn more_text(more: bool) -> &'static str {
    if more { "; there are more: raise --limit" } else { "" }
}

pub(super) fn print_unreadable(
    out: &mut Output<'_>,
    UnreadableRow { pk, sk, reason }: &UnreadableRow,
) -> io::Result<()> {
    let aggregate = partition_name(pk);
    let json = json!({"aggregate": aggregate, "item": sk, "why": reason});
    out.print_outcome("unreadable", json, &format!("{aggregate} {sk}: {reason}"))
}
