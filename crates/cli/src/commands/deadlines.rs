//! `daybook deadlines`: the commands that aggregates get at their times.

use clap::{Args, Subcommand};
use daybook_event_store::{StoredDeadline, UnreadableRow};
use daybook_operations::deadlines::{DeadlineSelection, MarkCounts, MarkOptions, Marked, find, mark};
use daybook_operations::derived::DerivedRows;
use daybook_table::keys::partition_name;
use daybook_table::{DeadlineItem, DeadlineState};
use serde_json::{Value, json};

use super::derived::{RebuildArgs, correct};
use crate::operator::{Ended, OnStack, OperatorContext, Session};

/// List deadlines, fire failed ones again or drop them, and correct those of a type.
#[derive(Clone, Debug, Subcommand)]
pub enum DeadlinesCommand {
    List(OnStack<DeadlinesListArgs>),
    /// Fire deadlines again whose commands have failed, once the cause is corrected.
    ///
    /// A dry run by default; `--yes` executes it. The deadlines are pending again, with the same time, and the reactor fires them
    /// within a minute. The state then decides: a deadline that it no longer declares has no effect.
    Retry(OnStack<MarkOptions>),
    /// Drop deadlines whose commands have failed: these are never sent.
    ///
    /// A dry run by default; `--yes` executes it. The deadlines must be named. They are marked as fired, and stay so until the
    /// state declares another time for them.
    Drop(OnStack<MarkOptions>),
    /// Correct the deadlines of a type after `Aggregate::deadlines` was introduced or changed.
    ///
    /// Run it after the deployment, when no instance of the earlier release writes any more. It sets the deadlines of states, and
    /// deletes all others. It is safe beside writers, and can be repeated.
    Rebuild(OnStack<RebuildArgs>),
}

/// List the pending deadlines, the earliest ones first, one per line.
///
/// A line contains the state of the deadline, the aggregate, the name and the time; that of a failed one also the error, and when it
/// failed. Those of a named aggregate are listed in all states; one that has fired is listed until the state no longer declares it.
#[derive(Clone, Debug, Args)]
pub struct DeadlinesListArgs {
    #[command(flatten)]
    selection: DeadlineSelection,
    /// Those whose commands have failed.
    #[arg(long)]
    failed: bool,
}

impl DeadlinesCommand {
    pub(super) async fn run(self, context: &mut OperatorContext) -> Ended {
        match self {
            Self::List(command) => command.run(context, list).await,
            Self::Retry(command) => command.run(context, async |args, on| mark_all(args, false, on).await).await,
            Self::Drop(command) => command.run(context, async |args, on| mark_all(args, true, on).await).await,
            Self::Rebuild(command) => {
                command.run(context, async |args, on| correct(DerivedRows::Deadlines, args, on).await).await
            }
        }
    }
}

async fn list(
    DeadlinesListArgs { selection, failed }: DeadlinesListArgs,
    Session { stack, mut out }: Session<'_>,
) -> Ended {
    let found = find(&stack, &selection, failed).await?;
    for deadline in &found.deadlines {
        let (json, text) = described(deadline);
        out.print_outcome(state(deadline), json, &text)?;
    }
    for UnreadableRow { pk, sk, reason } in &found.unreadable {
        let json = json!({"aggregate": partition_name(pk), "item": sk, "why": reason});
        out.print_outcome("unreadable", json, &format!("{pk} {sk}: {reason}"))?;
    }
    let (listed, unreadable, more) = (found.deadlines.len(), found.unreadable.len(), found.more);
    let text = format!("{listed} deadlines listed, {unreadable} unreadable{}", more_text(more));
    out.finish(&text, &json!({"deadlines": listed, "unreadable": unreadable, "more": more}), None, unreadable == 0)
}

async fn mark_all(options: MarkOptions, drops: bool, Session { stack, mut out }: Session<'_>) -> Ended {
    let (would_mark, is_marked, doing) =
        if drops { ("would-drop", "dropped", "drops") } else { ("would-retry", "retried", "retries") };
    let marked = mark(&stack, &options, drops, |deadline, marked| {
        let (json, text) = described(deadline);
        let outcome = match marked {
            Marked::WouldMark => would_mark,
            Marked::Marked => is_marked,
            Marked::Changed => "changed",
        };
        out.print_outcome(outcome, json, &text)
    });
    let counts = marked.await?;
    let MarkCounts { dry_run, selected, marked, changed, unreadable, more } = counts;
    let text = match dry_run {
        true => format!("{selected} failed deadlines, {unreadable} unreadable; this was a dry run, --yes {doing} them"),
        false => {
            format!("{marked} deadlines {is_marked}; {changed} were changed meanwhile, {unreadable} are unreadable")
        }
    };
    let next = stack.interrupt.is_cancelled().then_some("run it again");
    let is_clean = changed + unreadable == 0 && (dry_run || !more);
    out.finish(&(text + more_text(more)), &counts, next, is_clean)
}

fn more_text(more: bool) -> &'static str {
    if more { "; there are more: raise --limit" } else { "" }
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
