//! The operations on projections and their views.
//!
//! [`rebuild`]: fills a view, with its progress and its `visit`s of aggregates.

pub mod rebuild;
mod visit;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::num::NonZeroU32;

use daybook_event_store::StoreError;
use daybook_projection::{ProjectionModel, Projections};
use daybook_table::AggregateKey;
use daybook_view_store::{ProjectionVersions, SuspendedAggregate, VersionMark, View, ViewStore};
use futures_util::TryStreamExt;
use futures_util::stream::FuturesUnordered;
use jiff::{SignedDuration, Timestamp};

use crate::error::OperatorError;
use crate::pacing::{Interrupt, Pacer};
use crate::queues::QueueCounts;
use crate::stack::{CHANGES_QUEUE, Stack};

const DELETED_TOGETHER: usize = 25;

const SEGMENTS: i32 = 8;

/// The pause between two switches. An invocation of the projector that began before a switch may fold an event into one
/// version and end before it folds it into the other. Its message is delivered again after the visibility time-out of the
/// queue, 3 minutes, and the invocation takes up to 30 seconds.
const PAUSE: SignedDuration = SignedDuration::from_mins(5);

#[derive(Debug)]
pub struct VersionStatus {
    pub name: String,
    pub version: u32,
    pub is_registered: bool,
    pub is_read: bool,
    pub mark: VersionMark,
}

/// Whether readers get another version than before, or why they could miss something with it.
#[derive(Debug)]
pub enum Switched {
    Already,
    Rejected { read: u32, reason: String },
    From { version: u32 },
}

#[derive(Debug)]
pub enum Dropped {
    Rejected(&'static str),
    /// The number of items that were deleted or found, until the stack was interrupted.
    Items(u64),
}

/// The versions of these projections, or of all, and the messages that wait for the projector.
pub async fn status(stack: &Stack, names: &[String]) -> Result<(Vec<VersionStatus>, QueueCounts), OperatorError> {
    let projections = (stack.projections)()?;
    for name in names {
        versions(&projections, name)?;
    }
    let (views, queue) = (stack.views().await?, stack.queue(CHANGES_QUEUE).await?);
    let mut all = Vec::new();
    for name in projections.names().filter(|name| names.is_empty() || names.iter().any(|of| of == name)) {
        let stored = views.projection_versions(name).await.map_err(views_error("cannot read the versions"))?;
        all.extend(statuses(&projections, name, &stored));
    }
    Ok((all, queue.counts().await?))
}

/// The versions that the code registers, or that the table contains.
fn statuses(projections: &Projections, name: &str, stored: &ProjectionVersions) -> Vec<VersionStatus> {
    let pointer = stored.pointer.as_ref().map(|pointer| pointer.version);
    let read = projections.read_version(name, pointer).map(|model| model.version());
    let registered = projections.versions(name).into_iter().map(|model| model.version());
    let all: BTreeSet<u32> = registered.chain(stored.marks.keys().copied()).chain(pointer).collect();
    let status = |version| VersionStatus {
        name: name.to_owned(),
        version,
        is_registered: projections.get(name, version).is_some(),
        is_read: read == Some(version),
        mark: stored.marks.get(&version).cloned().unwrap_or_default(),
    };
    all.into_iter().map(status).collect()
}

/// Lets the readers of a projection use another version; without `force`, only if they miss nothing.
pub async fn switch(stack: &Stack, name: &str, to: u32, force: bool) -> Result<Switched, OperatorError> {
    let projections = (stack.projections)()?;
    let model = version(&projections, name, Some(to))?;
    let views = stack.views().await?;
    let error = views_error("cannot switch the version");
    let stored = views.projection_versions(name).await.map_err(&error)?;
    let to = View::new(model.name(), model.version());
    let read = stored.pointer.as_ref().map(|pointer| pointer.version);
    let read = read.or_else(|| projections.read_version(name, None).map(|model| model.version()));
    let from = View::new(model.name(), read.unwrap_or(to.version));
    if from == to {
        return Ok(Switched::Already);
    }
    let now = Timestamp::now();
    if let Some(reason) = reason_to_reject(&stored, &to, now).filter(|_| !force) {
        return Ok(Switched::Rejected { read: from.version, reason });
    }
    if !views.switch(&from, &to, &stored, now).await.map_err(&error)? {
        let cause =
            "somebody else switches the same projection at the same time; check with `daybook projection status`";
        return Err(OperatorError::Failed(cause.to_owned()));
    }
    Ok(Switched::From { version: from.version })
}

fn reason_to_reject(stored: &ProjectionVersions, to: &View, now: Timestamp) -> Option<String> {
    let mark = stored.marks.get(&to.version).cloned().unwrap_or_default();
    let cause = match (mark.missed_since, mark.filled_at.or(mark.read_until), mark.leads_since) {
        (Some(since), ..) => {
            Some(format!("it may lack events, because a release without it has folded events since {since:.0}"))
        }
        (None, None, _) => Some("it is not filled".to_owned()),
        (None, Some(_), None) => Some("it may show events later than the version that readers get".to_owned()),
        (None, Some(_), Some(_)) => None,
    };
    if let Some(cause) = cause {
        let View { name, version } = to;
        return Some(format!("{cause}; run `daybook projection rebuild {name} --version {version}` first"));
    }
    let next = stored.pointer.as_ref().map(|pointer| pointer.switched_at + PAUSE)?;
    (now < next).then(|| format!("the last switch was less than {} minutes ago; wait until {next:.0}", PAUSE.as_mins()))
}

pub async fn suspended(stack: &Stack) -> Result<Vec<SuspendedAggregate>, OperatorError> {
    let views = stack.views().await?;
    let mut suspended = views.suspended().await.map_err(views_error("cannot list suspended aggregates"))?;
    suspended.sort_by(|one, other| (&one.view, &one.aggregate).cmp(&(&other.view, &other.aggregate)));
    Ok(suspended)
}

/// Resumes the suspended ones of these aggregates, or all, until the stack is interrupted.
pub async fn resume(
    stack: &Stack,
    aggregates: &[AggregateKey],
    mut report: impl FnMut(&View, &AggregateKey) -> io::Result<()>,
) -> Result<(), OperatorError> {
    let (projections, views) = ((stack.projections)()?, stack.views().await?);
    let queue = stack.queue(CHANGES_QUEUE).await?;
    let named = aggregates.iter().flat_map(|key| {
        let following = projections.following(&key.aggregate_type);
        following.map(move |model| (View::new(model.name(), model.version()), key.clone()))
    });
    let mut to_resume: Vec<_> = named.collect();
    if aggregates.is_empty() {
        let found = views.suspended().await.map_err(views_error("cannot list suspended aggregates"))?;
        to_resume.extend(found.into_iter().map(|found| (found.view, found.aggregate)));
    }
    for (view, aggregate) in to_resume {
        if stack.interrupt.is_cancelled() {
            break;
        }
        let send = async |event| queue.send_changed(&BTreeMap::from([(aggregate.clone(), event)])).await.map(drop);
        let resumed = views.resume_and_send(&view, &aggregate, Timestamp::now(), send).await;
        if resumed.map_err(views_error("cannot resume an aggregate"))?? {
            report(&view, &aggregate)?;
        }
    }
    Ok(())
}

/// Deletes a version that nobody uses, at this number of items per second; only counts its items without a rate.
pub async fn drop_version(stack: &Stack, view: &View, rate: Option<NonZeroU32>) -> Result<Dropped, OperatorError> {
    let views = stack.views().await?;
    let error = views_error("cannot delete the version");
    let pointer = views.projection_versions(&view.name).await.map_err(&error)?.pointer;
    if pointer.is_some_and(|pointer| pointer.version == view.version) {
        return Ok(Dropped::Rejected("readers get this version; run `daybook projection switch` first"));
    }
    if (stack.projections)()?.get(&view.name, view.version).is_some() {
        let reason = "this code registers it; deploy a release without it first, and build daybook from that release";
        return Ok(Dropped::Rejected(reason));
    }
    let interrupt = &stack.interrupt;
    let pacer = rate.map(|rate| Pacer::new(rate, interrupt.clone()));
    let segments = (0..SEGMENTS).map(|segment| drop_segment(&views, view, segment, pacer.as_ref(), interrupt));
    let segments: FuturesUnordered<_> = segments.collect();
    let items = segments.try_fold(0, async |sum, items| Ok(sum + items)).await.map_err(&error)?;
    if rate.is_some() && !interrupt.is_cancelled() {
        // Last, so that `status` lists the version until it is gone.
        views.delete_mark(view).await.map_err(&error)?;
    }
    Ok(Dropped::Items(items))
}

/// Deletes the items of a segment at the rate of the pacer, or only counts them without one. Returns their number.
async fn drop_segment(
    views: &ViewStore,
    view: &View,
    segment: i32,
    pacer: Option<&Pacer>,
    interrupt: &Interrupt,
) -> Result<u64, StoreError> {
    let (mut items, mut after) = (0, None);
    loop {
        let page = views.items_to_drop(view, (segment, SEGMENTS), after).await?;
        for keys in page.keys.chunks(DELETED_TOGETHER) {
            if let Some(pacer) = pacer {
                if pacer.turns(keys.len()).await.is_none() {
                    return Ok(items);
                }
                views.delete_items(keys).await?;
            }
            items += keys.len() as u64;
        }
        after = page.next;
        if after.is_none() || interrupt.is_cancelled() {
            return Ok(items);
        }
    }
}

/// The versions of the projection of that name, from the lowest on; at least one.
fn versions<'a>(projections: &'a Projections, name: &str) -> Result<Vec<&'a dyn ProjectionModel>, OperatorError> {
    let versions = projections.versions(name);
    if versions.is_empty() {
        let known: Vec<_> = projections.names().collect();
        let known = if known.is_empty() { "there is none".to_owned() } else { format!("known: {}", known.join(", ")) };
        return Err(OperatorError::Usage(format!("there is no projection {name:?} in this code; {known}")));
    }
    Ok(versions)
}

/// A version of the projection of that name; the highest without a number.
fn version<'a>(
    projections: &'a Projections,
    name: &str,
    version: Option<u32>,
) -> Result<&'a dyn ProjectionModel, OperatorError> {
    let versions = versions(projections, name)?;
    let found = versions.iter().rev().find(|model| version.is_none_or(|version| version == model.version()));
    found.copied().ok_or_else(|| {
        let known: Vec<_> = versions.iter().map(|model| model.version().to_string()).collect();
        let (version, known) = (version.unwrap_or_default(), known.join(", "));
        OperatorError::Usage(format!(
            "this code does not register version {version} of {name:?}, only {known}; build daybook from the deployed commit"
        ))
    })
}

fn views_error(doing: &str) -> impl Fn(StoreError) -> OperatorError {
    move |source| {
        if source.is_missing_table() {
            let cause =
                "the views table does not exist: check VIEWS_TABLE_NAME, AWS_REGION and AWS_ENDPOINT_URL_DYNAMODB";
            return OperatorError::Failed(cause.to_owned());
        }
        OperatorError::store(doing)(source)
    }
}
