//! `daybook snapshot rebuild`, `daybook claims rebuild` and `daybook deadlines rebuild`: write again what follows from events.

use std::num::{NonZeroU32, NonZeroUsize};

use clap::{Args, Subcommand};
use daybook_decider::AggregateKey;
use daybook_operations::derived::{Corrected, CorrectedClaims, CorrectedCounts, Derived, rebuild};
use daybook_operations::selection::Selection;
use daybook_operations::snapshot::{SnapshotCounts, SnapshotResult, rebuild_snapshots};
use daybook_operations::walk::{WalkOptions, Walked};
use serde_json::json;

use crate::operator::{CommandFuture, Ended, OnStack, OperatorContext, Session};

/// Take snapshots ahead of time.
#[derive(Clone, Debug, Subcommand)]
pub enum SnapshotCommand {
    Rebuild(OnStack<SnapshotRebuildArgs>),
}

impl SnapshotCommand {
    pub(super) fn run(self, context: &mut OperatorContext) -> CommandFuture<'_> {
        let Self::Rebuild(command) = self;
        command.run(context, snapshots)
    }
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
    aggregates: Vec<AggregateKey>,
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

async fn snapshots(args: SnapshotRebuildArgs, Session { stack, mut out }: Session<'_>) -> Ended {
    let options = args.walk.of(args.aggregates);
    let rebuilt = rebuild_snapshots(&stack, &options, args.min_events, args.force, |aggregate, result| {
        let (outcome, detail) = match result {
            SnapshotResult::Current | SnapshotResult::Short => return Ok(()),
            SnapshotResult::Taken { version } => ("taken", format!("at event {version}")),
            SnapshotResult::TooLarge { bytes } => ("too-large", format!("the snapshot would have {bytes} bytes")),
            SnapshotResult::Failed(reason) => ("failed", reason.clone()),
            SnapshotResult::Missing => ("missing", "it has no events".to_owned()),
        };
        let colon = if outcome == "taken" { "" } else { ":" };
        let json = json!({"aggregate": aggregate, "detail": detail});
        out.print_outcome(outcome, json, &format!("{aggregate}{colon} {detail}"))
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

/// Correct which aggregates have unique values.
#[derive(Clone, Debug, Subcommand)]
pub enum ClaimsCommand {
    /// Correct the claims of a type after `Aggregate::claims` was introduced or changed.
    ///
    /// Run it after the deployment, when no instance of the earlier release writes any more. It releases the claims that states do
    /// not have any more, takes those that nobody has, and reports each claim that two aggregates should have: the one that has it
    /// keeps it. It is safe beside writers, and can be repeated.
    Rebuild(OnStack<RebuildArgs>),
}

impl ClaimsCommand {
    pub(super) fn run(self, context: &mut OperatorContext) -> CommandFuture<'_> {
        let Self::Rebuild(command) = self;
        command.run(context, async |args, on| correct(Derived::Claims(&[]), args, on).await)
    }
}

#[derive(Clone, Debug, Args)]
pub struct RebuildArgs {
    /// The aggregate type.
    #[arg(value_name = "TYPE")]
    aggregate_type: String,
    /// Write the rows; without this option, the command is a dry run.
    #[arg(long)]
    yes: bool,
    /// Maximum aggregates and claims per second.
    #[arg(long, value_name = "N", default_value = "100")]
    rate: NonZeroU32,
    /// Maximum aggregates processed concurrently.
    #[arg(long, value_name = "N", default_value = "8")]
    concurrency: NonZeroUsize,
}

pub(super) async fn correct(rows: Derived<'_>, args: RebuildArgs, Session { stack, mut out }: Session<'_>) -> Ended {
    let RebuildArgs { aggregate_type, yes: writes, rate, concurrency } = args;
    let selection = Selection { types: vec![aggregate_type], ..Selection::default() };
    let options = WalkOptions { selection, rate, concurrency };
    let would_be = if writes { "" } else { "would be " };
    let rebuilt = rebuild(&stack, &options, rows, writes, |aggregate, result| {
        let lines = match result {
            Ok(corrected) => lines(corrected, would_be),
            Err(reason) => vec![("failed", reason.clone())],
        };
        lines.into_iter().try_for_each(|(outcome, detail)| {
            out.print(
                json!({"aggregate": aggregate, "outcome": outcome, "detail": detail}),
                format!("{aggregate}: {detail}"),
            )
        })
    });
    let Walked { counts, how_to_go_on } = rebuilt.await?;
    let CorrectedCounts { added, removed, elsewhere, failed, .. } = counts;
    let text = match rows {
        Derived::Claims(_) => format!(
            "{removed} claims {would_be}released, {added} {would_be}taken; other aggregates have {elsewhere}, {failed} \
             aggregates cannot be read"
        ),
        Derived::Deadlines { .. } => {
            format!("{added} deadlines {would_be}set, {removed} {would_be}deleted; {failed} aggregates cannot be read")
        }
    };
    out.finish(&text, &counts, how_to_go_on.as_deref(), elsewhere + failed == 0)
}

/// What a correction changes, each with its outcome.
fn lines(corrected: &Corrected, would_be: &str) -> Vec<(&'static str, String)> {
    let Corrected { claims: CorrectedClaims { taken, released, elsewhere }, deadlines } = corrected;
    let released = released.iter().map(|claim| ("released", format!("{would_be}released: {claim}")));
    let taken = taken.iter().map(|claim| ("taken", format!("{would_be}taken: {claim}")));
    let elsewhere = elsewhere.iter().map(|(claim, holder)| ("elsewhere", format!("{holder} has {claim}")));
    let deleted = deadlines.dropped.iter().map(|name| ("deleted", format!("{would_be}deleted: {name}")));
    let set = deadlines.set.iter().map(|(name, due)| ("set", format!("{would_be}set: {name}, due {due}")));
    released.chain(taken).chain(elsewhere).chain(deleted).chain(set).collect()
}
