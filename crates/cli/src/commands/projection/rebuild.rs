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

pub(crate) mod progress;
mod visit;

use std::io::Write;
use std::num::NonZeroU32;
use std::pin::pin;
use std::time::Duration;

use clap::Args;
use daybook_event_store::StoreError;
use daybook_projection::Projections;
use daybook_table::ChangedAggregates;
use daybook_view_store::{View, ViewStore};
use futures_util::StreamExt;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

use self::progress::{Pass, RebuildProgress};
use self::visit::{VisitError, Visitor};
use super::named::{version, views_error};
use crate::operator::call_usage::CallMeter;
use crate::operator::listing::Listing;
use crate::operator::pacing::Pacer;
use crate::operator::progress::{ProgressLine, is_terminal};
use crate::operator::selection::SelectionArgs;
use crate::operator::target::{SETTINGS_TO_FIND, STACK_HELP, StackArgs};
use crate::operator::{Exit, OperatorContext, OperatorError, output_line};

/// Maximum batches of aggregates on which the projector may work at the same time. It bounds the messages that wait for
/// the projector: a message that nobody works on counts until its aggregates must be sent again.
const MAX_IN_WORK: usize = 8;

/// Maximum batches that are not done. Those that must be sent again do not delay the batches after them, as long as it
/// is not reached. After a crash, the aggregates of these batches are compared again.
const MAX_OPEN: usize = 50;

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
    /// Send an aggregate again if the view does not show it after this time.
    #[arg(long, value_name = "SECONDS", default_value = "10")]
    pub send_again_after: NonZeroU32,
    /// The wait between the two passes: longer than 25 seconds, in which an instance of the projector reads the marks again,
    /// and one invocation.
    #[arg(long, value_name = "SECONDS", default_value = "60")]
    pub wait_for_projector: u32,
    /// Print JSON, one object per line.
    #[arg(long)]
    pub json: bool,
    /// Which stack.
    #[command(flatten)]
    pub stack: StackArgs,
}

/// Fills the view.
pub(super) async fn run(
    args: ProjectionRebuildArgs,
    projections: &Projections,
    context: &mut OperatorContext,
) -> Result<Exit, OperatorError> {
    let model = version(projections, &args.name, args.version)?;
    let view = View::new(model.name(), model.version());
    let meter = CallMeter::default();
    let store = args.stack.metered_store(&context.environment, SETTINGS_TO_FIND, &meter).await?;
    let views = args.stack.views(&context.environment, &meter).await?;
    let queue = args.stack.changes_queue(&context.environment, &meter).await?;
    let error = views_error("store the progress of the rebuild");
    let mut progress = begin(&args, &views, &view).await?;
    let visitor = Visitor {
        view: &view,
        shards: model.shards(),
        store: &store,
        views: &views,
        queue: &queue,
        pacer: Pacer::new(args.rate, context.interrupt.clone()),
        interrupt: context.interrupt.clone(),
        in_work: Semaphore::new(MAX_IN_WORK),
        send_again_after: Duration::from_secs(args.send_again_after.get().into()),
    };
    let types = model.follows().iter().map(ToString::to_string).collect();
    let selection = SelectionArgs { types, ..SelectionArgs::default() };
    let mut is_first = true;
    loop {
        if progress.pass == Pass::Check {
            let wait = SignedDuration::from_secs(args.wait_for_projector.into());
            lead(&visitor, &mut progress, wait).await.map_err(&error)?;
        }
        let listing = if is_first {
            selection.list(&store, &context.registry, &[], &progress.position).await
        } else {
            selection.list_unchecked(&store, &context.registry, &[], &progress.position)
        };
        is_first = false;
        let listing = listing.map_err(|error| match error {
            OperatorError::Usage(text) => OperatorError::Usage(format!("{text}; --restart begins anew")),
            other => other,
        })?;
        let walked = walk(&visitor, listing, args.json, context, &mut progress, &meter).await;
        progress.usage += meter.take();
        if walked.is_err() || context.interrupt.is_set() {
            let stored = views.store_progress(&view, &progress.to_json(), Timestamp::now()).await;
            walked?;
            stored.map_err(&error)?;
            return end(&args, &view, context, &progress, Some("run it again"));
        }
        match progress.pass {
            Pass::Fill => {
                progress.begin_check();
                views.store_progress(&view, &progress.to_json(), Timestamp::now()).await.map_err(&error)?;
            }
            Pass::Check => break,
        }
    }
    let filled_at = progress.has_no_findings().then(Timestamp::now);
    let is_ended = views.end_rebuild(&view, filled_at).await.map_err(&error)?;
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
    let begun = views.begin_rebuild(view, &progress.to_json(), Timestamp::now()).await;
    begun.map_err(views_error("begin the rebuild"))?;
    Ok(progress)
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
    context.print_summary(args.json, &text, &summary, how_to_go_on)?;
    Ok(match how_to_go_on {
        Some(_) if context.interrupt.is_set() => Exit::Interrupted,
        None if is_filled => Exit::Clean,
        _ => Exit::Findings,
    })
}

/// Lets the version lead, and waits until no invocation of the projector is running that began before. The second
/// pass begins anew if the version did not lead until now: then the aggregates that an earlier run checked may have
/// events that the version lacks.
async fn lead(visitor: &Visitor<'_>, progress: &mut RebuildProgress, wait: SignedDuration) -> Result<(), StoreError> {
    let since = visitor.views.mark(visitor.view).await?.and_then(|mark| mark.leads_since);
    let since = match since {
        Some(since) => since,
        None => {
            progress.begin_check();
            let now = Timestamp::now();
            visitor.views.lead(visitor.view, &progress.to_json(), now).await?;
            now
        }
    };
    let left = (since + wait).duration_since(Timestamp::now());
    if let Ok(left) = Duration::try_from(left) {
        if is_terminal() {
            eprintln!(
                "waiting {} s: until then, an instance of the projector may not fill this version; the second pass follows",
                left.as_secs()
            );
        }
        tokio::select! {
            () = visitor.interrupt.wait() => {}
            () = sleep(left) => {}
        }
    }
    Ok(())
}

/// Visits all aggregates of the listing, batch by batch, and stores the progress.
async fn walk(
    visitor: &Visitor<'_>,
    listing: Listing<'_>,
    as_json: bool,
    context: &mut OperatorContext,
    progress: &mut RebuildProgress,
    meter: &CallMeter,
) -> Result<(), OperatorError> {
    let line = ProgressLine::of_fraction();
    let batches = listing.aggregates(&visitor.interrupt).chunks(ChangedAggregates::MAX);
    let visits = batches.map(async |batch| {
        let aggregates = batch.into_iter().collect::<Result<Vec<_>, _>>().map_err(VisitError::Store)?;
        visitor.visit(aggregates).await
    });
    let mut visits = pin!(visits.buffered(MAX_OPEN));
    let mut written_at = None::<Instant>;
    while let Some(visited) = visits.next().await {
        let Some(visited) = visited.map_err(VisitError::stopped)? else { break };
        let lines = progress.add(visitor.view, &visited);
        let print = |(json, text)| writeln!(context.out, "{}", output_line(as_json, json, text));
        line.suspend(|| lines.into_iter().try_for_each(print))?;
        if let Some(last) = visited.aggregates.last() {
            line.set_fraction(last.fraction, format!("{}, at {}", progress.text(), last.name));
        }
        if written_at.is_none_or(|at| at.elapsed() >= WRITE_INTERVAL) {
            progress.usage += meter.take();
            let written = visitor.views.store_progress(visitor.view, &progress.to_json(), Timestamp::now()).await;
            written.map_err(views_error("store the progress of the rebuild"))?;
            written_at = Some(Instant::now());
        }
    }
    Ok(())
}
