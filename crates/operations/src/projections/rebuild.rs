//! Fills a view: two passes over all aggregates that the projection follows. The first sends each aggregate that the view does
//! not show completely to the projector, and waits until the view shows it. Then the version begins to lead (see `versions.rs`
//! of the projector), and the second pass finds what the first could not see: aggregates whose messages an instance of the
//! previous release took, which does not know the version. If such an instance runs later, it removes the version's mark as
//! leading, and the rebuild does not end.
//!
//! The progress is in the views table. It passes an aggregate only when the view shows it, so a killed rebuild goes on and
//! leaves none out.

use std::io;
use std::num::NonZeroU32;
use std::pin::pin;
use std::time::Duration;

use clap::Args;
use daybook_aws_clients::{CallMeter, CallUsage};
use daybook_event_store::StoreError;
use daybook_table::ChangedAggregates;
use daybook_view_store::{View, ViewStore};
use futures_util::StreamExt;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

use crate::error::OperatorError;
use crate::pacing::Pacer;
use crate::projections::visit::{STOPPED, Visited, Visitor};
use crate::projections::{version, views_error};
use crate::queues::StackQueue;
use crate::selection::{Cursor, Listing, Selection};
use crate::stack::{CHANGES_QUEUE, SETTINGS_TO_FIND, Stack, is_loopback};
use crate::walk::WalkFinding;

/// Maximum batches of aggregates on which the projector may work at the same time. It bounds the messages that wait for
/// the projector: a message that nobody works on counts until its aggregates must be sent again.
const MAX_IN_WORK: usize = 8;

/// Maximum batches that are not done. Those that must be sent again do not delay the batches after them, as long as it
/// is not reached. After a crash, the aggregates of these batches are compared again.
const MAX_OPEN: usize = 50;

const WRITE_INTERVAL: Duration = Duration::from_secs(1);

/// In seconds.
const WAIT_FOR_PROJECTOR: u32 = 60;

const LOOK_INTERVAL: Duration = Duration::from_millis(50);

const STORING: &str = "cannot store the progress of the rebuild";

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
pub struct RebuildOptions {
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
    /// and one invocation. Default: 60; on the local stack, until no message is at the projector.
    #[arg(long, value_name = "SECONDS")]
    pub wait_for_projector: Option<u32>,
}

#[derive(Debug)]
pub struct Rebuilt {
    pub view: View,
    pub progress: RebuildProgress,
    pub how_to_go_on: Option<&'static str>,
}

/// Fills the view, and reports the aggregates that it does not show completely.
pub async fn rebuild(
    stack: &Stack,
    options: &RebuildOptions,
    mut report: impl FnMut(&View, WalkFinding) -> io::Result<()>,
) -> Result<Rebuilt, OperatorError> {
    let projections = (stack.projections)()?;
    let model = version(&projections, &options.name, options.version)?;
    let view = View::new(model.name(), model.version());
    let meter = CallMeter::default();
    let stack = &Stack { meter: Some(meter.clone()), ..stack.clone() };
    let (store, views) = (stack.store(SETTINGS_TO_FIND).await?, stack.views().await?);
    let queue = stack.queue(CHANGES_QUEUE).await?;
    let error = views_error(STORING);
    let mut progress = begin(options.restart, &views, &view).await?;
    let visitor = Visitor {
        view: &view,
        part_count: model.part_count(),
        store: &store,
        views: &views,
        queue: &queue,
        pacer: Pacer::new(options.rate, stack.interrupt.clone()),
        interrupt: stack.interrupt.clone(),
        in_work: Semaphore::new(MAX_IN_WORK),
        send_again_after: Duration::from_secs(options.send_again_after.get().into()),
    };
    let types = model.follows().iter().map(ToString::to_string).collect();
    let selection = Selection { types, ..Selection::default() };
    selection.check(&store, &stack.registry).await?;
    loop {
        if progress.pass == Pass::Check {
            let since = lead(&visitor, &mut progress).await.map_err(&error)?;
            wait_for_projector(stack, &queue, since, options.wait_for_projector).await?;
        }
        let listing =
            selection.list(&stack.registry, &stack.interrupt, &store, progress.after.as_ref()).map_err(|error| {
                match error {
                    OperatorError::Usage(text) => OperatorError::Usage(format!("{text}; --restart begins anew")),
                    other => other,
                }
            })?;
        let walked = walk(stack, &visitor, listing, &mut progress, &meter, &mut report).await;
        progress.usage += meter.take();
        if walked.is_err() || stack.interrupt.is_cancelled() {
            let stored = views.store_progress(&view, &progress.to_json(), Timestamp::now()).await;
            walked?;
            stored.map_err(&error)?;
            return Ok(Rebuilt { view, progress, how_to_go_on: Some("run it again") });
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
    Ok(Rebuilt { view, progress, how_to_go_on: (!is_ended).then_some(next) })
}

/// The progress of the run that is continued, or of a new one.
async fn begin(restart: bool, views: &ViewStore, view: &View) -> Result<RebuildProgress, OperatorError> {
    let mark = views.mark(view).await.map_err(views_error("cannot read the progress of the rebuild"))?;
    if let Some(text) = mark.and_then(|mark| mark.progress).filter(|_| !restart) {
        return serde_json::from_str(&text).map_err(|error| {
            OperatorError::Usage(format!("another release wrote the progress of the rebuild: {error}; use --restart"))
        });
    }
    let progress = RebuildProgress::default();
    let begun = views.begin_rebuild(view, &progress.to_json(), Timestamp::now()).await;
    begun.map_err(views_error("cannot begin the rebuild"))?;
    Ok(progress)
}

/// Lets the version lead, and returns since when it does. The second pass begins anew if the version did not lead until
/// now: then the aggregates that an earlier run checked may have events that the version lacks.
async fn lead(visitor: &Visitor<'_>, progress: &mut RebuildProgress) -> Result<Timestamp, StoreError> {
    if let Some(since) = visitor.views.mark(visitor.view).await?.and_then(|mark| mark.leads_since) {
        return Ok(since);
    }
    progress.begin_check();
    let now = Timestamp::now();
    visitor.views.lead(visitor.view, &progress.to_json(), now).await?;
    Ok(now)
}

/// Waits until no invocation of the projector is running that began before the version led. The local stack has one version
/// of the code, and its queue shows exactly whether an invocation is running: its messages are hidden until it ends.
async fn wait_for_projector(
    stack: &Stack,
    queue: &StackQueue,
    since: Timestamp,
    given: Option<u32>,
) -> Result<(), OperatorError> {
    let until = since + SignedDuration::from_secs(given.unwrap_or(WAIT_FOR_PROJECTOR).into());
    let looks = given.is_none() && is_loopback(&stack.required(CHANGES_QUEUE)?);
    while let Ok(left) = Duration::try_from(until.duration_since(Timestamp::now())) {
        if stack.interrupt.is_cancelled() || (looks && queue.counts().await?.hidden == 0) {
            break;
        }
        let seconds = left.as_secs();
        let doing = format!("waiting {seconds} s: until then, an instance of the projector may not fill this version");
        (stack.progress)(None, doing);
        stack.interrupt.run_until_cancelled(sleep(if looks { LOOK_INTERVAL } else { left })).await;
    }
    Ok(())
}

async fn walk(
    stack: &Stack,
    visitor: &Visitor<'_>,
    listing: Listing<'_>,
    progress: &mut RebuildProgress,
    meter: &CallMeter,
    report: &mut impl FnMut(&View, WalkFinding) -> io::Result<()>,
) -> Result<(), OperatorError> {
    let visits = listing.chunks(ChangedAggregates::MAX).map(async |batch| {
        let aggregates = batch.into_iter().collect::<Result<Vec<_>, _>>().map_err(OperatorError::store(STOPPED))?;
        visitor.visit(aggregates).await
    });
    let mut visits = pin!(visits.buffered(MAX_OPEN));
    let mut written_at = None::<Instant>;
    while let Some(visited) = visits.next().await {
        let Some(visited) = visited? else { break };
        progress.add(&visited).into_iter().try_for_each(|found| report(visitor.view, found))?;
        if let Some(last) = visited.aggregates.last() {
            (stack.progress)(last.fraction, format!("{}, at {}", progress.text(), last.name));
        }
        if written_at.is_none_or(|at| at.elapsed() >= WRITE_INTERVAL) {
            progress.usage += meter.take();
            let written = visitor.views.store_progress(visitor.view, &progress.to_json(), Timestamp::now()).await;
            written.map_err(views_error(STORING))?;
            written_at = Some(Instant::now());
        }
    }
    Ok(())
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RebuildProgress {
    pass: Pass,
    /// Up to where the aggregates of the pass are done; `None` at its beginning.
    after: Option<Cursor>,
    pub counts: RebuildCounts,
    pub usage: CallUsage,
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
pub struct RebuildCounts {
    /// Aggregates of the first pass that are done.
    pub filled: u64,
    /// Aggregates of the second pass that are done.
    pub checked: u64,
    /// Aggregates that were sent to the projector, each time that they were.
    pub sent: u64,
    pub messages: u64,
    pub suspended: u64,
    /// Rows of the index that cannot be read, and aggregates without metadata.
    pub unreadable: u64,
}

impl RebuildProgress {
    pub fn text(&self) -> String {
        match self.pass {
            Pass::Fill => format!("{} aggregates filled", self.counts.filled),
            Pass::Check => format!("{} of {} aggregates checked", self.counts.checked, self.counts.filled),
        }
    }

    fn to_json(&self) -> String {
        serde_json::to_string(self).expect("texts and numbers have a JSON form")
    }

    /// Whether the view shows every aggregate that was checked.
    pub fn has_no_findings(&self) -> bool {
        self.counts.suspended + self.counts.unreadable == 0
    }

    fn begin_check(&mut self) {
        self.pass = Pass::Check;
        self.after = None;
        self.counts = RebuildCounts { checked: 0, suspended: 0, unreadable: 0, ..self.counts };
    }

    /// Adds a batch that is done. Returns its findings.
    fn add(&mut self, visited: &Visited) -> Vec<WalkFinding> {
        let of_pass = if self.pass == Pass::Fill { &mut self.counts.filled } else { &mut self.counts.checked };
        *of_pass += visited.aggregates.iter().filter(|listed| listed.key.is_some()).count() as u64;
        self.counts.sent += visited.sent;
        self.counts.messages += visited.messages;
        let cursor = visited.aggregates.iter().rev().find_map(|listed| listed.cursor.clone());
        self.after = cursor.or(self.after.take());
        // The second pass finds them again.
        if self.pass == Pass::Fill {
            return Vec::new();
        }
        let suspended = visited.suspended.iter().map(|(key, reason)| ("suspended", key.to_string(), reason.clone()));
        let unreadable = visited.aggregates.iter().filter(|listed| listed.key.is_none()).map(|listed| {
            let reason = listed.unreadable.as_ref().map(|row| row.reason.to_string());
            let reason = reason.unwrap_or_else(|| "the row belongs to no aggregate".to_owned());
            ("unreadable", listed.name.clone(), reason)
        });
        let without = visited.without_metadata.iter().map(|key| {
            ("unreadable", key.to_string(), "it has no metadata; check it with `daybook verify`".to_owned())
        });
        let all = suspended.chain(unreadable).chain(without);
        let found: Vec<_> = all.map(|(kind, name, reason)| WalkFinding { kind, name, reason }).collect();
        self.counts.suspended += visited.suspended.len() as u64;
        self.counts.unreadable += (found.len() - visited.suspended.len()) as u64;
        found
    }
}
