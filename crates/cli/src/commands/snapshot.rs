//! `daybook snapshot`: takes snapshots ahead of time.

use std::num::{NonZeroU32, NonZeroUsize};

use clap::{Args, Subcommand};
use daybook_admin::{AdminCalls, AggregateProgress, SnapshotProgress};
use daybook_decider::Model;
use daybook_event_store::{EventStore, SnapshotOutcome, StoreError};
use daybook_table::AggregateKey;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::operator::checkpoint::{Checkpoint, CheckpointArgs};
use crate::operator::listing::ListedAggregate;
use crate::operator::pacing::Pacer;
use crate::operator::selection::{AggregateName, SelectionArgs};
use crate::operator::target::{SETTINGS_TO_TAKE_SNAPSHOTS, STACK_HELP, StackArgs};
use crate::operator::walk::{AggregateWalk, WalkProgress};
use crate::operator::{Exit, OperatorContext, OperatorError, output_line};

/// Take snapshots ahead of time.
#[derive(Clone, Debug, Subcommand)]
pub enum SnapshotCommand {
    Rebuild(SnapshotRebuildArgs),
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
#[command(after_long_help = STACK_HELP)]
pub struct SnapshotRebuildArgs {
    /// Only this aggregate; can be repeated.
    #[arg(long = "aggregate", value_name = "TYPE/ID", conflicts_with_all = ["types", "event_types", "after", "checkpoint"])]
    pub aggregates: Vec<AggregateName>,
    /// Which aggregates.
    #[command(flatten)]
    pub selection: SelectionArgs,
    /// Skip aggregates with fewer than N events after their snapshot. Default: SNAPSHOT_EVERY, or 1 for those that --aggregate names.
    #[arg(long, value_name = "N")]
    pub min_events: Option<u64>,
    /// Fold from the first event, replace current snapshots too, and correct wrong older ones. Use it to repair
    /// snapshots in which `daybook verify` finds something wrong.
    #[arg(long)]
    pub force: bool,
    /// Maximum aggregates per second.
    #[arg(long, value_name = "N", default_value = "20")]
    pub rate: NonZeroU32,
    /// Maximum aggregates processed concurrently.
    #[arg(long, value_name = "N", default_value = "4")]
    pub concurrency: NonZeroUsize,
    /// Where the progress is stored.
    #[command(flatten)]
    pub checkpoint: CheckpointArgs,
    /// Print JSON, one object per line.
    #[arg(long)]
    pub json: bool,
    /// Which stack.
    #[command(flatten)]
    pub stack: StackArgs,
}

/// What happened to an aggregate.
#[derive(Debug)]
enum RebuildOutcome {
    Taken {
        version: u64,
    },
    /// Skipped: its snapshot is current, because few events follow it.
    Current,
    /// Skipped: it has few events and no snapshot, or its rules need the full history.
    Short,
    TooLarge {
        bytes: usize,
    },
    /// It has no events.
    Missing,
    /// Its events cannot be read, or some of them are missing; or a row of the index cannot be read.
    Failed(String),
}

/// The number of aggregates by outcome.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RebuildCounts {
    taken: u64,
    current: u64,
    short: u64,
    too_large: u64,
    missing: u64,
    failed: u64,
}

/// Takes the snapshots.
pub(super) async fn rebuild(args: SnapshotRebuildArgs, context: &mut OperatorContext) -> Result<Exit, OperatorError> {
    let store = args.stack.store(&context.environment, SETTINGS_TO_TAKE_SNAPSHOTS).await?;
    let named = !args.aggregates.is_empty();
    // An aggregate that the operator names gets a snapshot however few events it has.
    let min_events = args.min_events.unwrap_or(if named { 1 } else { store.snapshot_every() });
    let options = json!({
        "types": args.selection.types, "eventTypes": args.selection.event_types, "minEvents": min_events, "force": args.force,
    });
    let owner = args.stack.checkpoint_owner(&context.environment, &store, "snapshot rebuild", options).await;
    let (checkpoint, progress) = Checkpoint::open::<WalkProgress<RebuildCounts>>(&args.checkpoint, owner)?;
    let mut progress = progress.unwrap_or_default();
    let listing = args.selection.list(&store, &context.registry, &args.aggregates, &progress.position).await?;
    let pacer = Pacer::new(args.rate, context.interrupt.clone());
    let visit = async |aggregate: &ListedAggregate, model: Option<&dyn Model>| match (&aggregate.key, model) {
        _ if let Some(row) = &aggregate.unreadable => {
            Some(Ok(RebuildOutcome::Failed(format!("{}: {}", row.sk, row.reason))))
        }
        (Some(_), Some(model)) if model.full_history() && !named => Some(Ok(RebuildOutcome::Short)),
        (Some(key), Some(model)) => {
            pacer.turn().await?;
            Some(rebuild_one(&store, model, key, min_events, args.force).await)
        }
        _ => Some(Ok(RebuildOutcome::Current)),
    };
    let report = |counts: &mut RebuildCounts, aggregate: &ListedAggregate, outcome: RebuildOutcome| {
        counts.add(&outcome);
        outcome.line(&aggregate.name, args.json)
    };
    let walk = AggregateWalk { listing, concurrency: args.concurrency, checkpoint };
    let how_to_go_on = walk.run(context, &mut progress, visit, report).await?;
    let counts = progress.counts;
    let RebuildCounts { taken, current, short, too_large, missing, failed } = counts;
    let not_there = if missing > 0 { format!(", {missing} have no events") } else { String::new() };
    let text = format!(
        "{taken} snapshots taken; {current} aggregates had a current one, {short} need none, {too_large} are too large for \
         one, {failed} cannot be read{not_there}"
    );
    context.print_summary(args.json, &text, &counts, how_to_go_on.as_deref())?;
    if how_to_go_on.is_some() {
        return Ok(Exit::Interrupted);
    }
    Ok(if failed + missing == 0 { Exit::Clean } else { Exit::Findings })
}

/// Takes a snapshot of an aggregate with at least `min_events` events after its last snapshot; with `force` in any case.
async fn rebuild_one(
    store: &EventStore,
    model: &dyn Model,
    key: &AggregateKey,
    min_events: u64,
    force: bool,
) -> Result<RebuildOutcome, StoreError> {
    let AggregateProgress { version, snapshot } = store.admin().progress(key).await?;
    if model.full_history() {
        return Ok(if version == 0 { RebuildOutcome::Missing } else { RebuildOutcome::Short });
    }
    // A load ignores a snapshot of an event that does not exist.
    let is_usable = |snapshot: &SnapshotProgress| {
        snapshot.state_version == model.state_version() && (1..=version).contains(&snapshot.version)
    };
    let usable = snapshot.filter(is_usable);
    let is_useless = snapshot.is_some() && usable.is_none();
    let newer_events = version - usable.map_or(0, |snapshot| snapshot.version);
    // Without metadata, only the events show whether the aggregate exists.
    if newer_events < min_events && !is_useless && !force && version > 0 {
        return Ok(if usable.is_some() { RebuildOutcome::Current } else { RebuildOutcome::Short });
    }
    let taken = if force {
        store.rebuild_snapshot(model, key, Timestamp::now()).await
    } else {
        store.take_snapshot(model, key, Timestamp::now()).await
    };
    let lost = |last: u64| {
        RebuildOutcome::Failed(format!("event {} is missing; the last event in the metadata is {version}", last + 1))
    };
    match taken {
        Ok(SnapshotOutcome::Taken { version: last }) if last < version => Ok(lost(last)),
        Ok(SnapshotOutcome::Taken { version }) => Ok(RebuildOutcome::Taken { version }),
        // The snapshotter has taken it in the meantime.
        Ok(SnapshotOutcome::NotNewer) => Ok(RebuildOutcome::Current),
        Ok(SnapshotOutcome::NotNeeded) => Ok(if version == 0 { RebuildOutcome::Missing } else { lost(0) }),
        Ok(SnapshotOutcome::TooLarge { bytes }) => Ok(RebuildOutcome::TooLarge { bytes }),
        Err(error @ (StoreError::Corrupt { .. } | StoreError::Newer { .. } | StoreError::Panicked { .. })) => {
            Ok(RebuildOutcome::Failed(daybook_function_runtime::with_causes(&error)))
        }
        Err(error @ (StoreError::Unavailable { .. } | StoreError::InvalidRequest { .. })) => Err(error),
    }
}

impl RebuildCounts {
    fn add(&mut self, outcome: &RebuildOutcome) {
        let count = match outcome {
            RebuildOutcome::Taken { .. } => &mut self.taken,
            RebuildOutcome::Current => &mut self.current,
            RebuildOutcome::Short => &mut self.short,
            RebuildOutcome::TooLarge { .. } => &mut self.too_large,
            RebuildOutcome::Missing => &mut self.missing,
            RebuildOutcome::Failed(_) => &mut self.failed,
        };
        *count += 1;
    }
}

impl RebuildOutcome {
    /// The line that reports the outcome; `None` for a skipped aggregate.
    fn line(&self, name: &str, as_json: bool) -> Option<String> {
        let (outcome, what) = match self {
            Self::Current | Self::Short => return None,
            Self::Taken { version } => ("taken", format!("at event {version}")),
            Self::TooLarge { bytes } => ("too-large", format!("the snapshot would have {bytes} bytes")),
            Self::Failed(reason) => ("failed", reason.clone()),
            Self::Missing => ("missing", "it has no events".to_owned()),
        };
        let colon = if matches!(self, Self::Taken { .. }) { "" } else { ":" };
        let json = json!({"aggregate": name, "outcome": outcome, "what": what});
        Some(output_line(as_json, json, format!("{outcome} {name}{colon} {what}")))
    }
}
