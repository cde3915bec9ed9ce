//! `daybook projection status`.

use std::collections::BTreeSet;
use std::io::Write;

use clap::Args;
use daybook_projection::Projections;
use daybook_view_store::{ProjectionVersions, VersionMark};
use jiff::Timestamp;
use serde_json::json;

use super::named::{versions, views_error};
use super::rebuild::progress::RebuildProgress;
use crate::operator::call_usage::CallMeter;
use crate::operator::target::{STACK_HELP, StackArgs};
use crate::operator::{Exit, OperatorContext, OperatorError, output_line};

/// Print the versions of each projection: which one readers get, which are filled, and how far a rebuild is.
///
/// Also prints how many messages wait in the projector's queue: the approximate count of SQS.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = STACK_HELP)]
pub struct ProjectionStatusArgs {
    /// Only these projections. Default: all that the code registers.
    #[arg(value_name = "PROJECTION")]
    pub names: Vec<String>,
    /// Also count the suspended aggregates of each version, which reads the whole views table. The exit status is 1 if there
    /// are any.
    #[arg(long)]
    pub suspended: bool,
    /// Print JSON, one object per line.
    #[arg(long)]
    pub json: bool,
    /// Which stack.
    #[command(flatten)]
    pub stack: StackArgs,
}

/// Prints the versions.
pub(super) async fn run(
    args: ProjectionStatusArgs,
    projections: &Projections,
    context: &mut OperatorContext,
) -> Result<Exit, OperatorError> {
    for name in &args.names {
        versions(projections, name)?;
    }
    let meter = CallMeter::default();
    let views = args.stack.views(&context.environment, &meter).await?;
    let queue = args.stack.changes_queue(&context.environment, &meter).await?;
    let error = views_error("read the versions");
    let suspended = if args.suspended { views.suspended().await.map_err(&error)? } else { Vec::new() };
    let mut printed = 0;
    for name in projections.names().filter(|name| args.names.is_empty() || args.names.iter().any(|of| of == name)) {
        let stored = views.projection_versions(name).await.map_err(&error)?;
        for status in statuses(projections, name, &stored) {
            let of_version = |found: &&daybook_view_store::SuspendedAggregate| {
                found.view.name == name && found.view.version == status.version
            };
            let suspended = args.suspended.then(|| suspended.iter().filter(of_version).count());
            writeln!(context.out, "{}", status.line(args.json, name, suspended))?;
            printed += 1;
        }
    }
    let counts = queue.counts().await?;
    let summary = json!({
        "versions": printed, "messagesWaiting": counts.visible, "messagesInWork": counts.hidden,
        "suspended": args.suspended.then_some(suspended.len()),
    });
    let text = format!(
        "{printed} versions; {} messages wait for the projector, {} are in work{}",
        counts.visible,
        counts.hidden,
        if args.suspended { format!("; {} aggregates are suspended", suspended.len()) } else { String::new() }
    );
    context.print_summary(args.json, &text, &summary, None)?;
    Ok(if suspended.is_empty() { Exit::Clean } else { Exit::Findings })
}

/// What is known about a version.
struct VersionStatus {
    version: u32,
    is_registered: bool,
    is_read: bool,
    mark: VersionMark,
}

/// The versions that the code registers, or that the table contains.
fn statuses(projections: &Projections, name: &str, stored: &ProjectionVersions) -> Vec<VersionStatus> {
    let pointer = stored.pointer.as_ref().map(|pointer| pointer.version);
    let read = projections.read_version(name, pointer).map(|model| model.version());
    let registered = projections.versions(name).into_iter().map(|model| model.version());
    let all: BTreeSet<u32> = registered.chain(stored.marks.keys().copied()).chain(pointer).collect();
    let status = |version| VersionStatus {
        version,
        is_registered: projections.get(name, version).is_some(),
        is_read: read == Some(version),
        mark: stored.marks.get(&version).cloned().unwrap_or_default(),
    };
    all.into_iter().map(status).collect()
}

impl VersionStatus {
    fn line(&self, as_json: bool, name: &str, suspended: Option<usize>) -> String {
        let Self { version, is_registered, is_read, mark } = self;
        let progress = mark.progress.as_deref().map(|text| serde_json::from_str::<RebuildProgress>(text).ok());
        let times = |time: Option<Timestamp>| time.map(|time| time.to_string());
        let json = json!({
            "projection": name, "version": version, "registered": is_registered, "read": is_read,
            "filledAt": times(mark.filled_at), "startedAt": times(mark.started_at), "readUntil": times(mark.read_until),
            "missedSince": times(mark.missed_since),
            "rebuilding": progress.as_ref().map(|progress| json!({
                "progress": progress, "at": times(mark.progress_at),
            })),
            "suspended": suspended,
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
        if let Some(suspended) = suspended {
            text += &format!("; {suspended} aggregates are suspended");
        }
        output_line(as_json, json, text)
    }
}
