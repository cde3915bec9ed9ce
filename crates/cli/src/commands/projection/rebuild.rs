//! `daybook projection rebuild`.
//!
//! Two passes over all aggregates that the projection follows. The first sends each aggregate that the view does not show
//! completely to the projector, and waits until the view shows it. Then the version begins to lead (see `versions.rs` of
//! the projector), and the second pass finds what the first could not see: aggregates whose messages an instance of the
//! previous release took, which does not know the version. If such an instance runs later, it removes the version's mark as
//! leading, and the rebuild does not end.
//!
//! The progress is in the views table. It passes an aggregate only when the view shows it, so a killed rebuild goes on and
//! leaves none out.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::num::NonZeroU32;
use std::pin::pin;
use std::time::Duration;

use clap::Args;
use daybook_event_store::{EventStore, StoreError};
use daybook_projection::Projections;
use daybook_table::AggregateKey;
use daybook_view_store::{View, ViewStore};
use futures_util::StreamExt;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::named::{version, views_error};
use crate::operator::call_usage::{CallMeter, CallUsage};
use crate::operator::changes_queue::{ChangesQueue, MAX_AGGREGATES};
use crate::operator::listing::{ListedAggregate, Listing, Position};
use crate::operator::pacing::Pacer;
use crate::operator::progress::ProgressLine;
use crate::operator::selection::SelectionArgs;
use crate::operator::target::{ChangesArgs, SETTINGS_TO_FIND, STACK_HELP, TableArgs, ViewsArgs};
use crate::operator::{Exit, Interrupt, OperatorContext, OperatorError, output_line};

/// Maximum batches of aggregates that are in work at the same time. It bounds the messages that wait for the projector.
const CONCURRENCY: usize = 4;

/// Aggregates that are compared, for each one that may be sent.
const COMPARED_PER_SENT: usize = 10;

/// The pause before the first read of a position. It doubles with each further read.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// Maximum of the pause between two reads of a position.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Maximum of the time after which an aggregate is sent again; it doubles each time.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// The pause between two writes of the progress.
const WRITE_INTERVAL: Duration = Duration::from_secs(1);

/// Fill a view with all aggregates that its projection follows, while commands and readers go on.
///
/// Run it after a release that registers a new VERSION of a projection is deployed completely, or after read models were
/// turned on. It sends every aggregate that the view does not show yet to the projector, waits until the view shows it, and
/// then compares all aggregates once more. Nothing is counted twice. Readers are not affected: `daybook projection switch`
/// lets them use the new version.
///
/// The views table stores the progress. After Ctrl-C, an error or a crash, run the same command again: it goes on where it
/// ended, also on another machine. An aggregate that is suspended in the view is printed; the view is then not filled.
#[derive(Clone, Debug, Args)]
#[command(after_long_help = STACK_HELP)]
pub struct ProjectionRebuildArgs {
    /// The projection.
    #[arg(value_name = "PROJECTION")]
    pub name: String,
    /// The version. Default: the highest that the code registers.
    #[arg(long, value_name = "N")]
    pub version: Option<u32>,
    /// Begin anew, and ignore the progress of an earlier run.
    #[arg(long)]
    pub restart: bool,
    /// Maximum aggregates per second that are sent to the projector. Ten times as many are compared.
    #[arg(long, value_name = "N", default_value = "200")]
    pub rate: NonZeroU32,
    /// Send an aggregate again if the view does not show it after this time; the time doubles, up to a minute.
    #[arg(long, value_name = "SECONDS", default_value = "10")]
    pub send_again_after: NonZeroU32,
    /// The wait between the two passes, if the code registers several versions: longer than an invocation of the projector.
    #[arg(long, value_name = "SECONDS", default_value = "60")]
    pub wait_for_projector: u32,
    /// Print JSON, one object per line.
    #[arg(long)]
    pub json: bool,
    /// Which table.
    #[command(flatten)]
    pub table: TableArgs,
    /// Which views.
    #[command(flatten)]
    pub views: ViewsArgs,
    /// Which queue.
    #[command(flatten)]
    pub changes: ChangesArgs,
}

/// How far a rebuild is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RebuildProgress {
    pass: Pass,
    /// Up to where the aggregates of the pass are done.
    position: Position,
    counts: RebuildCounts,
    usage: CallUsage,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Pass {
    #[default]
    Fill,
    Check,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RebuildCounts {
    /// Aggregates of the first pass that are done.
    filled: u64,
    /// Aggregates of the second pass that are done.
    checked: u64,
    /// Aggregates that were sent to the projector, each time that they were.
    sent: u64,
    /// The messages that contained them.
    messages: u64,
    suspended: u64,
    /// Rows of the index that cannot be read, and aggregates without metadata.
    unreadable: u64,
}

impl RebuildProgress {
    pub(super) fn text(&self) -> String {
        match self.pass {
            Pass::Fill => format!("{} aggregates filled", self.counts.filled),
            Pass::Check => format!("{} of {} aggregates checked", self.counts.checked, self.counts.filled),
        }
    }
}

/// A rebuild that is running.
struct Rebuild<'a> {
    view: &'a View,
    store: &'a EventStore,
    views: &'a ViewStore,
    queue: &'a ChangesQueue,
    pacer: Pacer,
    interrupt: Interrupt,
    send_again_after: Duration,
}

/// What became of a batch of aggregates.
struct Visited {
    aggregates: Vec<ListedAggregate>,
    sent: u64,
    messages: u64,
    suspended: Vec<(AggregateKey, String)>,
    without_metadata: Vec<AggregateKey>,
}

/// Why a batch is not done.
enum VisitError {
    Store(StoreError),
    Views(StoreError),
    Queue(OperatorError),
}

/// Fills the view.
///
/// # Errors
///
/// When a table or the queue cannot be read or written.
pub(super) async fn run(
    args: ProjectionRebuildArgs,
    projections: &Projections,
    context: &mut OperatorContext,
) -> Result<Exit, OperatorError> {
    let model = version(projections, &args.name, args.version)?;
    let view = View::new(model.name(), model.version());
    let meter = CallMeter::default();
    let store = args.table.connect_metered(&context.environment, SETTINGS_TO_FIND, &meter).await?;
    let views = args.views.connect(&context.environment, &meter).await?;
    let queue = args.changes.connect(&context.environment, &meter).await?;
    let error = views_error("store the progress of the rebuild");
    let mut progress = begin(&args, &views, &view).await?;
    let rebuild = Rebuild {
        view: &view,
        store: &store,
        views: &views,
        queue: &queue,
        pacer: Pacer::new(args.rate, context.interrupt.clone()),
        interrupt: context.interrupt.clone(),
        send_again_after: Duration::from_secs(args.send_again_after.get().into()),
    };
    let types: Vec<_> = model.follows().iter().map(ToString::to_string).collect();
    loop {
        if progress.pass == Pass::Check {
            let is_only = projections.versions(&args.name).len() == 1;
            let wait = if is_only { 0 } else { args.wait_for_projector };
            rebuild.lead(&mut progress, SignedDuration::from_secs(wait.into())).await.map_err(&error)?;
        }
        let selection = SelectionArgs { types: types.clone(), ..SelectionArgs::default() };
        let listing = selection.list(&store, &context.registry, &[], &progress.position).await;
        let listing = listing.map_err(|error| match error {
            OperatorError::Usage(text) => OperatorError::Usage(format!("{text}; --restart begins anew")),
            other => other,
        })?;
        let walked = rebuild.walk(listing, args.json, context, &mut progress, &meter).await;
        progress.usage += meter.take();
        if walked.is_err() || context.interrupt.is_set() {
            let stored = views.store_progress(&view, &text_of(&progress), Timestamp::now()).await;
            walked?;
            stored.map_err(&error)?;
            return end(&args, &view, context, &progress, Some("run it again"));
        }
        match progress.pass {
            Pass::Fill => {
                progress = RebuildProgress { pass: Pass::Check, position: Position::default(), ..progress };
                views.store_progress(&view, &text_of(&progress), Timestamp::now()).await.map_err(&error)?;
            }
            Pass::Check => break,
        }
    }
    let is_filled = progress.counts.suspended + progress.counts.unreadable == 0;
    let is_ended = views.end_rebuild(&view, is_filled.then(Timestamp::now)).await.map_err(&error)?;
    progress.usage += meter.take();
    let next = "run it again after all instances of the release without this version have ended";
    end(&args, &view, context, &progress, (!is_ended).then_some(next))
}

/// The progress of the run that is continued, or of a new one.
async fn begin(args: &ProjectionRebuildArgs, views: &ViewStore, view: &View) -> Result<RebuildProgress, OperatorError> {
    let mark = views.mark(view).await.map_err(views_error("read the progress of the rebuild"))?;
    if let Some(text) = mark.and_then(|mark| mark.progress).filter(|_| !args.restart) {
        return serde_json::from_str(&text).map_err(|error| {
            OperatorError::Usage(format!("another release wrote the progress of the rebuild: {error}; use --restart"))
        });
    }
    let progress = RebuildProgress::default();
    let begun = views.begin_rebuild(view, &text_of(&progress), Timestamp::now()).await;
    begun.map_err(views_error("begin the rebuild"))?;
    Ok(progress)
}

/// As many turns as there are aggregates.
fn turns(aggregates: usize) -> u32 {
    u32::try_from(aggregates).unwrap_or(u32::MAX)
}

fn text_of(progress: &RebuildProgress) -> String {
    serde_json::to_string(progress).expect("texts and numbers have a JSON form")
}

/// Prints the summary.
fn end(
    args: &ProjectionRebuildArgs,
    view: &View,
    context: &mut OperatorContext,
    progress: &RebuildProgress,
    how_to_go_on: Option<&str>,
) -> Result<Exit, OperatorError> {
    let RebuildProgress { counts, usage, .. } = progress;
    let is_filled = how_to_go_on.is_none() && counts.suspended + counts.unreadable == 0;
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
    context.print_summary(args.json, &text, &summary, how_to_go_on)?;
    Ok(match how_to_go_on {
        Some(_) if context.interrupt.is_set() => Exit::Interrupted,
        None if is_filled => Exit::Clean,
        _ => Exit::Findings,
    })
}

impl Rebuild<'_> {
    /// Lets the version lead, and waits until no invocation of the projector is running that began before. The second
    /// pass begins anew if the version did not lead until now: then the aggregates that an earlier run checked may have
    /// events that the version lacks.
    async fn lead(&self, progress: &mut RebuildProgress, wait: SignedDuration) -> Result<(), StoreError> {
        let since = self.views.mark(self.view).await?.and_then(|mark| mark.leads_since);
        let since = match since {
            Some(since) => since,
            None => {
                progress.position = Position::default();
                progress.counts = RebuildCounts { checked: 0, suspended: 0, unreadable: 0, ..progress.counts };
                let now = Timestamp::now();
                self.views.lead(self.view, now).await?;
                now
            }
        };
        let left = (since + wait).duration_since(Timestamp::now());
        if let Ok(left) = Duration::try_from(left) {
            tokio::select! {
                () = self.interrupt.wait() => {}
                () = sleep(left) => {}
            }
        }
        Ok(())
    }

    /// Visits all aggregates of the listing, batch by batch, and stores the progress.
    async fn walk(
        &self,
        listing: Listing<'_>,
        as_json: bool,
        context: &mut OperatorContext,
        progress: &mut RebuildProgress,
        meter: &CallMeter,
    ) -> Result<(), OperatorError> {
        let line = ProgressLine::of_fraction();
        let batches = listing.aggregates(&self.interrupt).chunks(MAX_AGGREGATES);
        let visits = batches.map(async |batch| {
            let aggregates = batch.into_iter().collect::<Result<Vec<_>, _>>().map_err(VisitError::Store)?;
            self.visit(aggregates).await
        });
        let mut visits = pin!(visits.buffered(CONCURRENCY));
        let mut written_at = None::<Instant>;
        while let Some(visited) = visits.next().await {
            let Some(visited) = visited.map_err(VisitError::stopped)? else { break };
            let lines = progress.add(self.view, &visited);
            let print = |(json, text)| writeln!(context.out, "{}", output_line(as_json, json, text));
            line.suspend(|| lines.into_iter().try_for_each(print))?;
            if let Some(last) = visited.aggregates.last() {
                line.set_fraction(last.fraction, format!("{}, at {}", progress.text(), last.name));
            }
            if written_at.is_none_or(|at| at.elapsed() >= WRITE_INTERVAL) {
                progress.usage += meter.take();
                let written = self.views.store_progress(self.view, &text_of(progress), Timestamp::now()).await;
                written.map_err(views_error("store the progress of the rebuild"))?;
                written_at = Some(Instant::now());
            }
        }
        Ok(())
    }

    /// Makes the projector project those aggregates that the view does not show completely, and waits until it shows them.
    /// Returns `None` after Ctrl-C.
    async fn visit(&self, aggregates: Vec<ListedAggregate>) -> Result<Option<Visited>, VisitError> {
        let keys: BTreeSet<_> = aggregates.iter().filter_map(|listed| listed.key.clone()).collect();
        if self.pacer.turns(turns(keys.len().div_ceil(COMPARED_PER_SENT))).await.is_none() {
            return Ok(None);
        }
        let mut to_reach = self.store.admin().versions(&keys).await.map_err(VisitError::Store)?;
        let without_metadata = keys.iter().filter(|key| !to_reach.contains_key(*key)).cloned().collect();
        let mut visited = Visited { aggregates, sent: 0, messages: 0, suspended: Vec::new(), without_metadata };
        self.take_reached(&mut to_reach, &mut visited).await?;
        if self.pacer.turns(turns(to_reach.len())).await.is_none() {
            return Ok(None);
        }
        let mut send_again_after = self.send_again_after;
        while !to_reach.is_empty() {
            let left: Vec<_> = to_reach.keys().cloned().collect();
            visited.messages += self.queue.send(&left).await.map_err(VisitError::Queue)?;
            visited.sent += left.len() as u64;
            let until = Instant::now() + send_again_after;
            send_again_after = LONGEST_WAIT.min(send_again_after * 2);
            let mut pause = FIRST_PAUSE;
            while !to_reach.is_empty() && Instant::now() < until {
                tokio::select! {
                    biased;
                    () = self.interrupt.wait() => return Ok(None),
                    () = sleep(pause) => {}
                }
                pause = LONGEST_PAUSE.min(pause * 2);
                // One aggregate shows whether it is worth reading the positions of all.
                let mut probe: BTreeMap<_, _> =
                    to_reach.last_key_value().map(|(key, last)| (key.clone(), *last)).into_iter().collect();
                self.take_reached(&mut probe, &mut visited).await?;
                if probe.is_empty() {
                    to_reach.pop_last();
                    self.take_reached(&mut to_reach, &mut visited).await?;
                    pause = FIRST_PAUSE;
                }
            }
        }
        Ok(Some(visited))
    }

    /// Takes out the aggregates whose event of that number the view shows, and those that are suspended.
    async fn take_reached(
        &self,
        to_reach: &mut BTreeMap<AggregateKey, u64>,
        visited: &mut Visited,
    ) -> Result<(), VisitError> {
        if to_reach.is_empty() {
            return Ok(());
        }
        let keys = to_reach.keys().cloned().collect();
        let mut positions = self.views.positions(self.view, &keys).await.map_err(VisitError::Views)?;
        to_reach.retain(|key, last| match positions.remove(key) {
            Some(position) if position.suspended.is_some() => {
                visited.suspended.push((key.clone(), position.suspended.unwrap_or_default()));
                false
            }
            Some(position) => position.seq_num < *last,
            None => true,
        });
        Ok(())
    }
}

impl RebuildProgress {
    /// Adds a batch that is done. Returns the lines of its findings.
    fn add(&mut self, view: &View, visited: &Visited) -> Vec<(Value, String)> {
        let of_pass = if self.pass == Pass::Fill { &mut self.counts.filled } else { &mut self.counts.checked };
        *of_pass += visited.aggregates.iter().filter(|listed| listed.key.is_some()).count() as u64;
        self.counts.sent += visited.sent;
        self.counts.messages += visited.messages;
        visited.aggregates.iter().for_each(|listed| self.position.advance(listed));
        // The second pass finds them again.
        if self.pass == Pass::Fill {
            return Vec::new();
        }
        let mut lines = Vec::new();
        let (name, version) = (&view.name, view.version);
        let mut add = |outcome: &str, aggregate: String, reason: String| {
            let text = format!("{view} {aggregate} {outcome}: {reason}");
            let json = json!({
                "projection": name, "version": version, "aggregate": aggregate, "outcome": outcome, "reason": reason,
            });
            lines.push((json, text));
        };
        for (key, reason) in &visited.suspended {
            self.counts.suspended += 1;
            add("suspended", key.to_string(), reason.clone());
        }
        let unreadable = visited.aggregates.iter().filter(|listed| listed.key.is_none());
        let unreadable = unreadable.map(|listed| {
            let reason = listed.unreadable.as_ref().map(|row| row.reason.to_string());
            (listed.name.clone(), reason.unwrap_or_else(|| "the row belongs to no aggregate".to_owned()))
        });
        let without = visited.without_metadata.iter();
        let without =
            without.map(|key| (key.to_string(), "it has no metadata; check it with `daybook verify`".to_owned()));
        for (aggregate, reason) in unreadable.chain(without) {
            self.counts.unreadable += 1;
            add("unreadable", aggregate, reason);
        }
        lines
    }
}

impl VisitError {
    /// The error of a rebuild that stopped early.
    fn stopped(self) -> OperatorError {
        let doing = "stopped early, run it again to go on";
        match self {
            Self::Queue(error) => error,
            Self::Store(source) => OperatorError::Store { doing: doing.to_owned(), source },
            Self::Views(source) if source.is_missing_table() => views_error(doing)(source),
            Self::Views(source) => OperatorError::Store { doing: doing.to_owned(), source },
        }
    }
}
