//! `daybook process`: what processes wait for, and the events that they could not handle, or did not get.

use clap::{Args, Subcommand};
use daybook_operations::deadlines::RowSelection;
use daybook_operations::processes::{
    CatchUpCounts, CatchUpOptions, ProcessStatus, ProcessStatuses, ResumeOptions, SuspendedProcess, catch_up, resume,
    status, suspended,
};
use daybook_table::Suspension;
use serde_json::{Value, json};

use super::deadlines::{finish, more_text, outcome};
use crate::operator::{CommandFuture, Ended, OnStack, OperatorContext, Session};

/// Count what processes wait for; list the aggregates whose events they cannot handle, and resume them; send those whose events they
/// did not get.
///
/// A process gets the events of an aggregate in their order. If it cannot handle one, it is suspended in the events of this aggregate:
/// `order/7/fulfilment/7`. If the event does not show which process gets it, all of the type are: `order/7/fulfilment`. Failed
/// dispatches are listed and retried by `daybook deadlines`.
#[derive(Clone, Debug, Subcommand)]
pub enum ProcessCommand {
    Status(OnStack<ProcessStatusArgs>),
    /// List the suspended processes, those first that have been for the longest time.
    ///
    /// A line contains the name that `resume` takes, the number of the event that cannot be handled, since when, and why. The exit
    /// status is 1 if there are any.
    Suspended(OnStack<RowSelection>),
    /// Resume suspended processes, after the code or the event was corrected and deployed.
    ///
    /// A dry run by default; `--yes` executes it. The processes get the events in order, from the one on that could not be handled.
    /// If it still cannot be handled, they are suspended again.
    ///
    /// With `--skip`, they never get this event, and go on after it. They must then be named: `order/7/fulfilment/7`.
    Resume(OnStack<ResumeOptions>),
    CatchUp(OnStack<CatchUpOptions>),
}

impl ProcessCommand {
    pub(super) fn run(self, context: &mut OperatorContext) -> CommandFuture<'_> {
        match self {
            Self::Status(command) => command.run(context, count),
            Self::Suspended(command) => command.run(context, list),
            Self::Resume(command) => command.run(context, resume_all),
            Self::CatchUp(command) => command.run(context, send_all),
        }
    }
}

/// Count what the processes of each type wait for, one type per line.
///
/// A line contains the pending dispatches and since when the first one is, the pending deadlines and when the first one is due, how
/// many of both have failed, and how many suspensions there are. The exit status is 1 if something has failed or is suspended.
#[derive(Clone, Debug, Args)]
pub struct ProcessStatusArgs {
    /// Maximum number of rows of a kind that are counted, the earliest ones.
    #[arg(long, value_name = "N", default_value = "10000")]
    limit: usize,
}

async fn count(ProcessStatusArgs { limit }: ProcessStatusArgs, Session { stack, mut out }: Session<'_>) -> Ended {
    let ProcessStatuses { types, unreadable, more } = status(&stack, limit).await?;
    let first =
        |text: &str, time: &Option<String>| time.iter().map(|time| format!(", {text} {time}")).collect::<String>();
    for status in &types {
        let ProcessStatus { process, dispatches, first_dispatch, deadlines, first_deadline, failed, suspended, .. } =
            status;
        let text = format!(
            "{process}: {dispatches} dispatches are pending{}; {deadlines} deadlines are pending{}; {failed} have failed; \
             {suspended} suspensions",
            first("the first since", first_dispatch),
            first("the first is due", first_deadline),
        );
        out.print(json!(status), text)?;
    }
    let text = format!("{} types of processes, {unreadable} rows unreadable{}", types.len(), more_text(more));
    let summary = json!({"processes": types.len(), "unreadable": unreadable, "more": more});
    let is_clean = unreadable == 0 && types.iter().all(|status| status.failed + status.suspended == 0);
    out.finish(&text, &summary, None, is_clean)
}

async fn list(selection: RowSelection, Session { stack, mut out }: Session<'_>) -> Ended {
    let found = suspended(&stack, &selection).await?;
    for process in &found.items {
        let (json, text) = described(process);
        out.print_outcome("suspended", json, &text)?;
    }
    found.unreadable.iter().try_for_each(|row| out.print_unreadable(row))?;
    let (listed, unreadable, more) = (found.items.len(), found.unreadable.len(), found.more);
    let text = format!("{listed} suspended processes, {unreadable} unreadable{}", more_text(more));
    let counts = json!({"suspended": listed, "unreadable": unreadable, "more": more});
    out.finish(&text, &counts, None, listed + unreadable == 0)
}

async fn resume_all(options: ResumeOptions, Session { stack, mut out }: Session<'_>) -> Ended {
    let words = if options.skip { ["would-skip", "skipped", "skips"] } else { ["would-resume", "resumed", "resumes"] };
    let resuming = resume(&stack, &options, |process, marked| {
        let (json, text) = described(process);
        out.print_outcome(outcome(words, marked), json, &text)
    });
    let counts = resuming.await?;
    finish(words, ["suspended", "processes"], &counts, Session { stack, out })
}

async fn send_all(options: CatchUpOptions, Session { stack, mut out }: Session<'_>) -> Ended {
    let outcome = if options.yes { "sent" } else { "would-send" };
    let caught_up = catch_up(&stack, &options, |aggregate, events| match events {
        Ok(events) => {
            let (first, last) = events.into_inner();
            let json = json!({"aggregate": aggregate, "first": first, "last": last});
            out.print_outcome(outcome, json, &format!("{aggregate}, events {first} to {last}"))
        }
        Err(reason) => {
            let json = json!({"aggregate": aggregate, "detail": reason});
            out.print_outcome("unreadable", json, &format!("{aggregate}: {reason}"))
        }
    });
    let counts = caught_up.await?;
    let CatchUpCounts { dry_run, since, compared, behind, older, suspended, unreadable } = &counts;
    let sent = if *dry_run { "are behind" } else { "were behind, and sent to the reactor" };
    let dry = if *dry_run { "; this was a dry run, --yes sends them" } else { "" };
    let text = format!(
        "{behind} of {compared} aggregates {sent}; {older} more have not changed since {since}, {suspended} are suspended, \
         {unreadable} unreadable{dry}"
    );
    out.finish(&text, &counts, stack.how_to_go_on(), *unreadable == 0)
}

/// A suspension as JSON, and as text: `order/7/fulfilment/7, event 4 since 2026-11-28T10:10:00.000Z: code panics`.
fn described(suspended: &SuspendedProcess) -> (Value, String) {
    let (source, process, Suspension { seq_num, since, error, .. }) =
        (suspended.source(), suspended.name(), &suspended.suspension);
    let event = seq_num + 1;
    let json = json!({
        "aggregate": source.to_string(), "process": process, "event": event, "since": since, "error": error,
    });
    (json, format!("{source}/{process}, event {event} since {since}: {error}"))
}
