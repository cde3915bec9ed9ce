//! `daybook deadlines`: the commands that aggregates get at their times, and those that processes dispatch to others.
//! `daybook process` marks rows too, and prints them with `outcome`, `finish` and `more_text` of this file.

use clap::{Args, Subcommand};
use daybook_event_store::StoredDeadline;
use daybook_operations::deadlines::{MarkCounts, MarkOptions, Marked, RowSelection, find, mark};
use daybook_operations::derived::Derived;
use daybook_table::{DeadlineItem, DeadlineState};
use serde_json::{Value, json};

use super::rebuild::{self, RebuildArgs};
use crate::operator::{CommandFuture, Ended, OnStack, OperatorContext, Session};

/// List deadlines and the dispatches of processes, retry failed ones or drop them, and correct those of a type.
///
/// A dispatch is a command of a process to another aggregate. It has a name of the process, as a deadline has, and is due at once.
#[derive(Clone, Debug, Subcommand)]
pub enum DeadlinesCommand {
    List(OnStack<DeadlinesListArgs>),
    /// Retry deadlines and dispatches whose commands have failed, once the cause is corrected.
    ///
    /// A dry run by default; `--yes` executes it. They are pending again, with the same time, and the reactor sends their commands
    /// within a minute. The state then decides: one that it no longer declares has no effect.
    Retry(OnStack<MarkOptions>),
    /// Drop deadlines and dispatches whose commands have failed: these are never sent.
    ///
    /// A dry run by default; `--yes` executes it. They must be named. They are marked as fired, and stay so until the state declares
    /// another time for a deadline, or a dispatch anew. A process gets no answer to a dispatch that was dropped.
    Drop(OnStack<MarkOptions>),
    /// Correct the deadlines and dispatches of a type after `Aggregate::deadlines` or `dispatches` was introduced or changed.
    ///
    /// Run it after the deployment, when no instance of the earlier release writes any more. It sets those of the states, and deletes
    /// all others. It is safe beside writers, and can be repeated.
    Rebuild(OnStack<RebuildArgs>),
}

impl DeadlinesCommand {
    pub(super) fn run(self, context: &mut OperatorContext) -> CommandFuture<'_> {
        match self {
            Self::List(command) => command.run(context, list),
            Self::Retry(command) => command.run(context, async |args, on| mark_all(args, false, on).await),
            Self::Drop(command) => command.run(context, async |args, on| mark_all(args, true, on).await),
            Self::Rebuild(command) => command
                .run(context, async |args, on| rebuild::correct(Derived::Deadlines { sends: true }, args, on).await),
        }
    }
}

/// List the pending deadlines and dispatches, the earliest ones first, one per line.
///
/// A line contains the state, the aggregate, the name and the time: when a deadline is due, or since when a dispatch is. That of a
/// failed one also contains the error, and when it failed. Those of a named aggregate are listed in all states; one that has
/// fired, or was sent, is listed as `fired` until the state no longer declares it.
#[derive(Clone, Debug, Args)]
pub struct DeadlinesListArgs {
    #[command(flatten)]
    selection: RowSelection,
    /// Those whose commands have failed.
    #[arg(long)]
    failed: bool,
}

async fn list(
    DeadlinesListArgs { selection, failed }: DeadlinesListArgs,
    Session { stack, mut out }: Session<'_>,
) -> Ended {
    let found = find(&stack, &selection, failed).await?;
    for deadline in &found.items {
        let (json, text) = described(deadline);
        out.print_outcome(state(deadline), json, &text)?;
    }
    found.unreadable.iter().try_for_each(|row| out.print_unreadable(row))?;
    let (listed, unreadable, more) = (found.items.len(), found.unreadable.len(), found.more);
    let text = format!("{listed} deadlines and dispatches listed, {unreadable} unreadable{}", more_text(more));
    out.finish(&text, &json!({"deadlines": listed, "unreadable": unreadable, "more": more}), None, unreadable == 0)
}

async fn mark_all(options: MarkOptions, drops: bool, Session { stack, mut out }: Session<'_>) -> Ended {
    let words = if drops { ["would-drop", "dropped", "drops"] } else { ["would-retry", "retried", "retries"] };
    let marked = mark(&stack, &options, drops, |deadline, marked| {
        let (json, text) = described(deadline);
        out.print_outcome(outcome(words, marked), json, &text)
    });
    let counts = marked.await?;
    let [would, _, doing] = words;
    let done = if drops { "dropped" } else { "retried: their commands are sent within a minute" };
    finish([would, done, doing], ["failed", "deadlines and dispatches"], &counts, Session { stack, out })
}

fn state(deadline: &StoredDeadline) -> &'static str {
    match deadline.item.state() {
        DeadlineState::Pending => "pending",
        DeadlineState::Fired => "fired",
        DeadlineState::Failed => "failed",
    }
}

/// A deadline as JSON, and as text: `reservation/7 hold, due 2026-11-28T10:10:00.000Z`.
fn described(StoredDeadline { aggregate, item, .. }: &StoredDeadline) -> (Value, String) {
    let DeadlineItem { due, error, failed_at, .. } = item;
    let failed = error.iter().zip(failed_at).map(|(error, at)| format!(", failed at {at}: {error}"));
    let text = format!("{aggregate} {}, due {due}{}", item.name(), failed.collect::<String>());
    let json = json!({
        "kind": "deadline", "aggregate": aggregate.to_string(), "name": item.name(), "due": due, "error": error,
        "failedAt": failed_at,
    });
    (json, text)
}

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
