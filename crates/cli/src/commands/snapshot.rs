//! `daybook snapshot`: snapshots ahead of time.

use std::num::{NonZeroU32, NonZeroUsize};

use clap::{Args, Subcommand};
use daybook_decider::Model;
use daybook_event_store::admin::{AggregateProgress, SnapshotProgress};
use daybook_event_store::{EventStore, SnapshotOutcome, StoreError};
use daybook_table::AggregateKey;
use jiff::Timestamp;
use serde_json::json;

use crate::operator::pacing::Pacer;
use crate::operator::selection::{AggregateName, Found, Selection};
use crate::operator::target::{HELP, TO_TAKE_SNAPSHOTS, TableOptions};
use crate::operator::walk::Walk;
use crate::operator::{Exit, OperateError, Operator};

/// What can be done with snapshots.
#[derive(Clone, Debug, Subcommand)]
pub enum Verb {
    /// Take a snapshot of each aggregate whose snapshot is of another STATE_VERSION, far behind, or not there.
    ///
    /// After a release with a new STATE_VERSION, aggregates are folded from their first events until their next snapshot is due;
    /// after an outage of the snapshotter, from the last one that it took. This takes it ahead of time, at a bounded rate.
    /// Aggregates with fewer than SNAPSHOT_EVERY events beyond their snapshot are passed by: they load as fast without a newer
    /// one. One that is named by --aggregate is passed by only when its snapshot is of its last event. A snapshot of another
    /// STATE_VERSION, or of an event that is not there, is always replaced.
    ///
    /// It can be ended at any time with Ctrl-C, and prints how to go on. Run again from the start it passes by what is current,
    /// at the price of one read each.
    #[command(after_long_help = HELP)]
    Rebuild(Options),
}

/// What is asked for.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Only of this aggregate; several times for several.
    #[arg(long = "aggregate", value_name = "TYPE/ID", conflicts_with_all = ["types", "event_types", "after"])]
    pub aggregates: Vec<AggregateName>,
    /// Which of all.
    #[command(flatten)]
    pub selection: Selection,
    /// Pass aggregates by with fewer events beyond their snapshot; SNAPSHOT_EVERY when it is not given, 1 for those that are
    /// named.
    #[arg(long, value_name = "N")]
    pub min_events: Option<u64>,
    /// Fold from the first event and take it even where there is a current one, and put wrong kept ones right: the cure for
    /// snapshots that `daybook verify` finds wrong.
    #[arg(long)]
    pub force: bool,
    /// Aggregates a second at most.
    #[arg(long, value_name = "N", default_value = "20")]
    pub rate: NonZeroU32,
    /// Aggregates side by side.
    #[arg(long, value_name = "N", default_value = "4")]
    pub concurrency: NonZeroUsize,
    /// Print JSON, one object a line.
    #[arg(long)]
    pub json: bool,
    /// Which table.
    #[command(flatten)]
    pub table: TableOptions,
}

/// What became of an aggregate.
#[derive(Debug)]
enum Rebuilt {
    Taken {
        version: u64,
    },
    /// Few events are beyond its snapshot.
    Current,
    /// It has few events, and no snapshot.
    Short,
    TooLarge {
        bytes: usize,
    },
    /// It has no events.
    Missing,
    /// Its events cannot be read, or not all of them are there.
    Failed(String),
}

/// Which aggregates want one.
#[derive(Clone, Copy)]
struct Wanted {
    /// With so many events beyond their snapshot.
    least: u64,
    /// All, folded from the first event.
    force: bool,
}

#[derive(Default)]
struct Tally {
    taken: u64,
    current: u64,
    short: u64,
    too_large: u64,
    missing: u64,
    failed: u64,
}

/// Carries the verb out.
///
/// # Errors
///
/// See [`OperateError`].
pub async fn run(verb: Verb, operator: &mut Operator) -> Result<Exit, OperateError> {
    match verb {
        Verb::Rebuild(options) => rebuild(options, operator).await,
    }
}

/// Takes them.
///
/// # Errors
///
/// When the table cannot be read or written.
pub async fn rebuild(options: Options, operator: &mut Operator) -> Result<Exit, OperateError> {
    let store = options.table.connect(&operator.environment, TO_TAKE_SNAPSHOTS).await?;
    let listing = options.selection.list(&store, &operator.registry, &options.aggregates)?;
    let named = !options.aggregates.is_empty();
    // One that is named is meant.
    let least = options.min_events.unwrap_or(if named { 1 } else { store.snapshot_every() });
    let wanted = Wanted { least, force: options.force };
    let pacer = Pacer::new(options.rate, operator.interrupt.clone());
    let look = async |found: &Found, model: Option<&dyn Model>| match (&found.key, model) {
        (Some(_), Some(model)) if model.full_history() && !named => Some(Ok(Rebuilt::Short)),
        (Some(key), Some(model)) => {
            pacer.turn().await?;
            Some(one(&store, model, key, wanted).await)
        }
        _ => Some(Ok(Rebuilt::Current)),
    };
    let mut tally = Tally::default();
    let tell = |found: &Found, rebuilt| tally.add(&found.name, &rebuilt, options.json);
    let walk = Walk { listing, after: options.selection.after.clone(), concurrency: options.concurrency };
    let go_on = walk.run(operator, look, tell).await?;
    let Tally { taken, current, short, too_large, missing, failed } = tally;
    let not_there = if missing > 0 { format!(", {missing} have no events") } else { String::new() };
    let text = format!(
        "{taken} snapshots taken; {current} aggregates had a current one, {short} need none, {too_large} are too large for \
         one, {failed} cannot be read{not_there}"
    );
    let summary = json!({
        "taken": taken, "current": current, "short": short, "tooLarge": too_large, "missing": missing, "failed": failed,
    });
    operator.sum_up(options.json, &text, summary, go_on.as_deref())?;
    if go_on.is_some() {
        return Ok(Exit::Interrupted);
    }
    Ok(if failed + missing == 0 { Exit::Clean } else { Exit::Findings })
}

/// Looks at one aggregate, and takes a snapshot if it wants one.
async fn one(
    store: &EventStore,
    model: &dyn Model,
    key: &AggregateKey,
    Wanted { least, force }: Wanted,
) -> Result<Rebuilt, StoreError> {
    let AggregateProgress { version, snapshot } = store.admin().progress(key).await?;
    if model.full_history() {
        return Ok(if version == 0 { Rebuilt::Missing } else { Rebuilt::Short });
    }
    // One of an event that is not there is none that a load uses.
    let is_usable = |snapshot: &SnapshotProgress| {
        snapshot.state_version == model.state_version() && (1..=version).contains(&snapshot.version)
    };
    let usable = snapshot.filter(is_usable);
    let is_useless = snapshot.is_some() && usable.is_none();
    let beyond = version - usable.map_or(0, |snapshot| snapshot.version);
    // Where the metadata knows of no event, the events tell whether there are any.
    if beyond < least && !is_useless && !force && version > 0 {
        return Ok(if usable.is_some() { Rebuilt::Current } else { Rebuilt::Short });
    }
    let taken = if force {
        store.admin().rebuild_snapshot(model, key, Timestamp::now()).await
    } else {
        store.take_snapshot(model, key, Timestamp::now()).await
    };
    let lost = |last: u64| {
        Rebuilt::Failed(format!("event {} is missing, the metadata says that the last is {version}", last + 1))
    };
    match taken {
        Ok(SnapshotOutcome::Taken { version: last }) if last < version => Ok(lost(last)),
        Ok(SnapshotOutcome::Taken { version }) => Ok(Rebuilt::Taken { version }),
        // Somebody else took it meanwhile.
        Ok(SnapshotOutcome::NotNewer) => Ok(Rebuilt::Current),
        Ok(SnapshotOutcome::NotNeeded) => Ok(if version == 0 { Rebuilt::Missing } else { lost(0) }),
        Ok(SnapshotOutcome::TooLarge { bytes }) => Ok(Rebuilt::TooLarge { bytes }),
        Err(error @ (StoreError::Corrupt { .. } | StoreError::Newer { .. })) => {
            Ok(Rebuilt::Failed(daybook_function_runtime::with_causes(&error)))
        }
        Err(error @ (StoreError::Unavailable { .. } | StoreError::InvalidRequest { .. })) => Err(error),
    }
}

impl Tally {
    /// Counts it, and tells what is worth a line.
    fn add(&mut self, name: &str, rebuilt: &Rebuilt, as_json: bool) -> Option<String> {
        let (outcome, what) = match rebuilt {
            Rebuilt::Current => {
                self.current += 1;
                return None;
            }
            Rebuilt::Short => {
                self.short += 1;
                return None;
            }
            Rebuilt::Taken { version } => {
                self.taken += 1;
                ("taken", format!("at event {version}"))
            }
            Rebuilt::TooLarge { bytes } => {
                self.too_large += 1;
                ("too-large", format!("the snapshot would have {bytes} bytes"))
            }
            Rebuilt::Failed(what) => {
                self.failed += 1;
                ("failed", what.clone())
            }
            Rebuilt::Missing => {
                self.missing += 1;
                ("missing", "it has no events".to_owned())
            }
        };
        Some(if as_json {
            json!({"aggregate": name, "outcome": outcome, "what": what}).to_string()
        } else {
            let colon = if matches!(rebuilt, Rebuilt::Taken { .. }) { "" } else { ":" };
            format!("{outcome} {name}{colon} {what}")
        })
    }
}
