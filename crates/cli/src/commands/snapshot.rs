//! `daybook snapshot`.

use clap::{Args, Subcommand};
use daybook_operations::selection::AggregateName;
use daybook_operations::snapshot::{SnapshotCounts, SnapshotResult, rebuild_snapshots};
use daybook_operations::walk::{WalkOptions, Walked};
use serde_json::json;

use crate::operator::{Ended, OnStack, Session};

/// Take snapshots ahead of time.
#[derive(Clone, Debug, Subcommand)]
pub enum SnapshotCommand {
    Rebuild(OnStack<SnapshotRebuildArgs>),
}

/// Take a snapshot of each aggregate whose snapshot is of another STATE_VERSION, far behind, or missing.
///
/// After a release with a new STATE_VERSION, aggregates are folded from their first events until their next snapshot is due;
/// after an outage of the snapshotter, from the last snapshot that it took. This command takes the snapshots ahead of time, at a
/// bounded rate. It skips aggregates with fewer than SNAPSHOT_EVERY events after their snapshot: a newer snapshot would
/// not make their loads faster. It skips an aggregate that --aggregate names only if the snapshot is of the last event.
/// It always replaces a snapshot of another STATE_VERSION, or of an event that does not exist.
///
/// Ctrl-C ends the command at any time; the summary then describes how to go on. A run from the start skips current
/// snapshots, at the cost of one read each.
#[derive(Clone, Debug, Args)]
#[command(mut_arg("rate", |rate| rate.default_value("20")), mut_arg("concurrency", |number| number.default_value("4")))]
pub struct SnapshotRebuildArgs {
    /// Only this aggregate; can be repeated.
    #[arg(long = "aggregate", value_name = "TYPE/ID", conflicts_with_all = ["types", "event_types", "after"])]
    aggregates: Vec<AggregateName>,
    #[command(flatten)]
    walk: WalkOptions,
    /// Skip aggregates with fewer than N events after their snapshot. Default: SNAPSHOT_EVERY, or 1 for those that --aggregate
    /// names.
    #[arg(long, value_name = "N")]
    min_events: Option<u64>,
    /// Fold from the first event, replace current snapshots too, and delete the copies of older ones. Use it to
    /// repair snapshots in which `daybook verify` finds something wrong.
    #[arg(long)]
    force: bool,
}

pub(super) async fn rebuild(args: SnapshotRebuildArgs, Session { stack, mut out }: Session<'_>) -> Ended {
    let options = args.walk.of(args.aggregates);
    let rebuilt = rebuild_snapshots(&stack, &options, args.min_events, args.force, |aggregate, result| {
        let (outcome, what) = match result {
            SnapshotResult::Current | SnapshotResult::Short => return Ok(()),
            SnapshotResult::Taken { version } => ("taken", format!("at event {version}")),
            SnapshotResult::TooLarge { bytes } => ("too-large", format!("the snapshot would have {bytes} bytes")),
            SnapshotResult::Failed(reason) => ("failed", reason.clone()),
            SnapshotResult::Missing => ("missing", "it has no events".to_owned()),
        };
        let colon = if outcome == "taken" { "" } else { ":" };
        let json = json!({"aggregate": aggregate, "what": what});
        out.print_outcome(outcome, json, &format!("{aggregate}{colon} {what}"))
    });
    let Walked { counts, how_to_go_on } = rebuilt.await?;
    let SnapshotCounts { taken, current, short, too_large, missing, failed } = counts;
    let not_there = if missing > 0 { format!(", {missing} have no events") } else { String::new() };
    let text = format!(
        "{taken} snapshots taken; {current} aggregates had a current one, {short} need none, {too_large} are too large for \
         one, {failed} cannot be read{not_there}"
    );
    out.finish(&text, &counts, how_to_go_on.as_deref(), failed + missing == 0)
}
