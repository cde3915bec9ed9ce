//! `daybook projection`: fills views, lets readers use another version of one, and resumes suspended aggregates.

use std::num::NonZeroU32;

use clap::{Args, Subcommand};
use daybook_decider::AggregateKey;
use daybook_operations::projections::rebuild::{RebuildOptions, RebuildProgress, Rebuilt, rebuild};
use daybook_operations::projections::{self, Dropped, Switched, VersionStatus};
use daybook_operations::queues::QueueCounts;
use daybook_operations::walk::WalkFinding;
use daybook_view_store::View;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::operator::{CommandFuture, Ended, Exit, NoArgs, OnStack, OperatorContext, Session};

/// Fill a view, switch its readers to another version, and resume suspended aggregates.
///
/// A view has a name and a version. To change a projection without downtime, register the new version beside the old one,
/// deploy, then run `rebuild`, `switch`, and, after a release without the old version, `drop`. docs/read-models.md describes
/// each step.
#[derive(Clone, Debug, Subcommand)]
pub enum ProjectionCommand {
    Rebuild(OnStack<RebuildOptions>),
    Status(OnStack<ProjectionStatusArgs>),
    Switch(OnStack<ProjectionSwitchArgs>),
    Drop(OnStack<ProjectionDropArgs>),
    /// List the aggregates that are suspended in a view, because an event of theirs cannot be folded into it.
    ///
    /// Reads the whole views table. The exit status is 1 if there are any.
    Suspended(OnStack<NoArgs>),
    Resume(OnStack<ProjectionResumeArgs>),
}

impl ProjectionCommand {
    pub(super) fn run(self, context: &mut OperatorContext) -> CommandFuture<'_> {
        match self {
            Self::Rebuild(command) => command.run(context, run_rebuild),
            Self::Status(command) => command.run(context, status),
            Self::Switch(command) => command.run(context, switch),
            Self::Drop(command) => command.run(context, drop_version),
            Self::Suspended(command) => command.run(context, suspended),
            Self::Resume(command) => command.run(context, resume),
        }
    }
}

/// Print the versions of each projection: which one readers get, which are filled, and how far a rebuild is.
///
/// Also prints how many messages wait in the projector's queue: the approximate count of SQS.
#[derive(Clone, Debug, Args)]
pub struct ProjectionStatusArgs {
    /// Only these projections. Default: all that the code registers.
    #[arg(value_name = "PROJECTION")]
    names: Vec<String>,
}

/// Let the readers of a view use another version.
///
/// All readers get the other version from their next request on. The command rejects a version that is not filled or may
/// lack events (run `daybook projection rebuild` first), and a second switch of the same view within 5 minutes. As long as the
/// code registers both versions, a switch back is possible: the earlier version follows new events too.
///
/// Exit status 1: the command rejected the switch, and nothing was changed.
#[derive(Clone, Debug, Args)]
pub struct ProjectionSwitchArgs {
    /// The projection.
    #[arg(value_name = "PROJECTION")]
    name: String,
    /// The version that readers get from now on.
    #[arg(value_name = "VERSION")]
    version: u32,
    /// Switch in any case. Readers may then miss rows and events that they have seen before, until the view has caught up.
    #[arg(long)]
    force: bool,
}

/// Delete a version of a view: its rows and positions.
///
/// The command rejects the version that readers get, and a version that this code registers: deploy a release without it
/// first. It reads the whole views table. Without --yes, it deletes nothing.
///
/// Exit status 1: the command rejected the version, and nothing was changed.
#[derive(Clone, Debug, Args)]
pub struct ProjectionDropArgs {
    /// The projection.
    #[arg(value_name = "PROJECTION")]
    name: String,
    /// The version.
    #[arg(value_name = "VERSION")]
    version: u32,
    /// Delete it. Default: only print what would be deleted.
    #[arg(long)]
    yes: bool,
    /// Maximum items that are deleted per second.
    #[arg(long, value_name = "N", default_value = "500")]
    rate: NonZeroU32,
}

/// Resume suspended aggregates, after the projection's code or the event was corrected and deployed.
///
/// Their events are folded in order, from the one on that could not be folded. If it still cannot be folded, the aggregate
/// is suspended again.
#[derive(Clone, Debug, Args)]
pub struct ProjectionResumeArgs {
    /// The aggregates. Default: all that are suspended; finding them reads the whole views table.
    #[arg(value_name = "TYPE/ID")]
    aggregates: Vec<AggregateKey>,
}

async fn run_rebuild(options: RebuildOptions, Session { stack, mut out }: Session<'_>) -> Ended {
    let rebuilt = rebuild(&stack, &options, |view, found| {
        let WalkFinding { kind, name, reason } = found;
        let json = json!({
            "projection": view.name, "version": view.version, "aggregate": name, "outcome": kind, "detail": reason,
        });
        out.print(json, format!("{view} {name} {kind}: {reason}"))
    });
    let Rebuilt { view, progress, how_to_go_on } = rebuilt.await?;
    let RebuildProgress { counts, usage, .. } = &progress;
    let is_filled = how_to_go_on.is_none() && progress.has_no_findings();
    let text = format!(
        "{view} is {}: {}; {} sent in {} messages; {} suspended, {} unreadable; {} calls, {} read units, {} write units",
        if is_filled { "filled" } else { "not filled" },
        progress.text(),
        counts.sent,
        counts.messages,
        counts.suspended,
        counts.unreadable,
        usage.total(),
        usage.read_units,
        usage.write_units,
    );
    let summary = json!({
        "projection": view.name, "version": view.version, "filled": is_filled, "counts": counts, "usage": usage,
    });
    out.print_summary(&text, &summary, how_to_go_on)?;
    Ok(match how_to_go_on {
        Some(_) if stack.interrupt.is_cancelled() => Exit::Interrupted,
        None if is_filled => Exit::Clean,
        _ => Exit::Findings,
    })
}

async fn status(args: ProjectionStatusArgs, Session { stack, mut out }: Session<'_>) -> Ended {
    let (versions, waiting) = projections::status(&stack, &args.names).await?;
    for status in &versions {
        let (json, text) = version_line(status);
        out.print(json, text)?;
    }
    let (printed, QueueCounts { visible, hidden }) = (versions.len(), waiting);
    let summary = json!({ "versions": printed, "messagesWaiting": visible, "messagesInWork": hidden });
    let text = format!("{printed} versions; {visible} messages wait for the projector, {hidden} are in work");
    out.finish(&text, &summary, None, true)
}

fn version_line(status: &VersionStatus) -> (Value, String) {
    let VersionStatus { name, version, is_registered, is_read, mark } = status;
    let progress = mark.progress.as_deref().map(|text| serde_json::from_str::<RebuildProgress>(text).ok());
    let times = |time: Option<Timestamp>| time.map(|time| time.to_string());
    let json = json!({
        "projection": name, "version": version, "registered": is_registered, "read": is_read,
        "filledAt": times(mark.filled_at), "startedAt": times(mark.started_at), "readUntil": times(mark.read_until),
        "missedSince": times(mark.missed_since),
        "rebuilding": progress.as_ref().map(|progress| json!({
            "progress": progress, "at": times(mark.progress_at),
        })),
    });
    let mut text = format!("{name}@{version}");
    text += if *is_read { " is read" } else { " is not read" };
    if !is_registered {
        text += ", is not registered by this code";
    }
    if let Some(at) = mark.filled_at {
        text += &format!(", filled at {at:.0}");
    } else if let Some(until) = mark.read_until {
        text += &format!(", was read until {until:.0}");
    } else {
        text += ", not filled";
    }
    if let Some(since) = mark.missed_since {
        text += &format!(", may lack events since {since:.0}");
    }
    if let Some(progress) = progress {
        let doing = progress.map_or_else(|| "progress of another release".to_owned(), |progress| progress.text());
        let since = mark.started_at.unwrap_or_default();
        text += &format!("; rebuild since {since:.0}: {doing}, at {:.0}", mark.progress_at.unwrap_or_default());
    }
    (json, text)
}

async fn switch(args: ProjectionSwitchArgs, Session { stack, mut out }: Session<'_>) -> Ended {
    let ProjectionSwitchArgs { name, version, force } = args;
    let summary = |from: u32, read: u32| json!({ "projection": name, "from": from, "read": read });
    match projections::switch(&stack, &name, version, force).await? {
        Switched::Already => {
            let text = format!("readers of {name} get version {version} already");
            out.finish(&text, &summary(version, version), None, true)
        }
        Switched::Rejected { read, reason } => {
            let json = json!({ "projection": name, "version": version, "rejected": reason });
            out.print(json, format!("{name}@{version} rejected: {reason}"))?;
            let text = format!("nothing was changed; readers of {name} get version {read}");
            out.finish(&text, &summary(read, read), None, false)
        }
        Switched::From { version: from } => {
            let text = format!("readers of {name} get version {version} from now on, instead of {from}");
            out.finish(&text, &summary(from, version), None, true)
        }
    }
}

async fn drop_version(args: ProjectionDropArgs, Session { stack, mut out }: Session<'_>) -> Ended {
    let ProjectionDropArgs { name, version, yes, rate } = args;
    let view = View::new(name, version);
    let summary = |items: u64| json!({ "dryRun": !yes, "items": items });
    let items = match projections::drop_version(&stack, &view, yes.then_some(rate)).await? {
        Dropped::Rejected(reason) => {
            let json = json!({ "projection": view.name, "version": view.version, "rejected": reason });
            out.print(json, format!("{view} rejected: {reason}"))?;
            return out.finish("nothing was deleted", &summary(0), None, false);
        }
        Dropped::Items(items) => items,
    };
    let next = stack.how_to_go_on();
    let text = match (yes, next) {
        (true, _) => format!("{items} items of {view} deleted"),
        (false, Some(_)) => format!("{items} items of {view} found"),
        (false, None) => format!("{items} items of {view} would be deleted; run it with --yes"),
    };
    out.finish(&text, &summary(items), next, true)
}

async fn suspended(_: NoArgs, Session { stack, mut out }: Session<'_>) -> Ended {
    let suspended = projections::suspended(&stack).await?;
    for found in &suspended {
        let (view, aggregate, seq_num, reason) = (&found.view, &found.aggregate, found.seq_num, &found.reason);
        let json = json!({
            "projection": view.name, "version": view.version, "aggregate": aggregate.to_string(), "seqNum": seq_num,
            "detail": reason,
        });
        out.print(json, format!("{view} {aggregate} suspended after event {seq_num}: {reason}"))?;
    }
    let count = suspended.len();
    out.finish(&format!("{count} aggregates are suspended"), &json!({ "suspended": count }), None, count == 0)
}

async fn resume(args: ProjectionResumeArgs, Session { stack, mut out }: Session<'_>) -> Ended {
    let mut resumed = 0_u64;
    let resuming = projections::resume(&stack, &args.aggregates, |view, aggregate| {
        resumed += 1;
        let json = json!({
            "projection": view.name, "version": view.version, "aggregate": aggregate.to_string(), "resumed": true,
        });
        out.print(json, format!("{view} {aggregate} resumed"))
    });
    resuming.await?;
    out.finish(&format!("{resumed} resumed"), &json!({ "resumed": resumed }), stack.how_to_go_on(), true)
}
