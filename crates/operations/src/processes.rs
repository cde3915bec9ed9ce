//! The operations on processes. [`status`] counts what they wait for. [`resume`] lets suspended processes go on, with the event that
//! could not be handled or after it. [`catch_up`] sends the reactor the aggregates whose events the processes have not handled.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};
use std::{io, slice};

use clap::Args;
use daybook_admin::AdminCalls;
use daybook_decider::record::timestamp;
use daybook_decider::{Model, Registry};
use daybook_event_store::{Page, PositionMove, StoredPosition};
use daybook_table::{AggregateKey, ChangedAggregates, Suspension};
use futures_util::StreamExt;
use jiff::Timestamp;
use serde::Serialize;
use tokio::time::sleep;

use crate::deadlines::{MarkCounts, MarkOptions, Marked, RowSelection, STOPPED_EARLY, find, mark_each};
use crate::error::OperatorError;
use crate::moment::Moment;
use crate::pacing::{COMPARED_PER_SENT, Pacer};
use crate::queues::StackQueue;
use crate::selection::{Selection, models};
use crate::stack::{REACTIONS_QUEUE, SETTINGS_TO_FIND, Stack};

/// After this time, the reactor gets the message about a position, which must be resumed by then.
const DELAY: Duration = Duration::from_secs(5);

// Without a documentation comment: it would replace the help text of the command that contains the options.
#[derive(Clone, Debug, Args)]
pub struct ResumeOptions {
    #[command(flatten)]
    pub marks: MarkOptions,
    /// Go on after the event that cannot be handled: the processes never get it.
    #[arg(long)]
    pub skip: bool,
}

/// What the processes of a type wait for.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessStatus {
    pub process: String,
    pub sources: Vec<String>,
    /// The dispatches that are pending, and since when the first of them is.
    pub dispatches: usize,
    pub first_dispatch: Option<String>,
    /// The deadlines that are pending, and when the first of them is due.
    pub deadlines: usize,
    pub first_deadline: Option<String>,
    /// The dispatches and deadlines that have failed.
    pub failed: usize,
    /// The suspensions in the events of their sources.
    pub suspended: usize,
}

#[derive(Debug)]
pub struct ProcessStatuses {
    pub types: Vec<ProcessStatus>,
    pub unreadable: usize,
    /// Whether there are more rows than the limit, all of them later.
    pub more: bool,
}

/// Counts what the processes of each type wait for: of the stack's pending rows, of those that have failed, and of its suspended
/// positions, the earliest up to the limit.
pub async fn status(stack: &Stack, limit: usize) -> Result<ProcessStatuses, OperatorError> {
    let all = RowSelection { names: Vec::new(), limit };
    let (pending, failed) = (find(stack, &all, false).await?, find(stack, &all, true).await?);
    let suspended = suspended(stack, &all).await?;
    let types = stack.registry.iter().filter(|model| !model.sources().is_empty()).map(|model| {
        let process = model.type_name();
        let of_process = pending.items.iter().filter(|row| row.aggregate.aggregate_type == process);
        let (dispatches, deadlines): (Vec<_>, Vec<_>) =
            of_process.map(|row| &row.item).partition(|row| row.to.is_some());
        ProcessStatus {
            process: process.to_owned(),
            sources: sources(&stack.registry, model),
            dispatches: dispatches.len(),
            first_dispatch: dispatches.first().map(|row| row.due.clone()),
            deadlines: deadlines.len(),
            first_deadline: deadlines.first().map(|row| row.due.clone()),
            failed: failed.items.iter().filter(|row| row.aggregate.aggregate_type == process).count(),
            suspended: suspended.items.iter().filter(|one| one.position.item.process_type() == process).count(),
        }
    });
    Ok(ProcessStatuses {
        types: types.collect(),
        unreadable: pending.unreadable.len() + failed.unreadable.len() + suspended.unreadable.len(),
        more: pending.more || failed.more || suspended.more,
    })
}

/// The process that is suspended in the events of an aggregate, or all of its type.
#[derive(Clone, Debug)]
pub struct SuspendedProcess {
    position: StoredPosition,
    /// The id of the process, or that of all.
    who: String,
    pub suspension: Suspension,
}

impl SuspendedProcess {
    pub fn source(&self) -> &AggregateKey {
        &self.position.source
    }

    /// `fulfilment/7`, or `fulfilment` for all.
    pub fn name(&self) -> String {
        self.position.item.name_of(&self.who)
    }
}

/// Reads what is suspended, of the selected positions or processes: `order/7/fulfilment`, or `order/7/fulfilment/7`.
pub async fn suspended(stack: &Stack, selection: &RowSelection) -> Result<Page<SuspendedProcess>, OperatorError> {
    // The limit is that of the selected ones.
    let limit = if selection.names.is_empty() { selection.limit } else { usize::MAX };
    let found = stack.store(&[]).await?.suspended_positions(limit).await;
    let Page { items: positions, unreadable, more, cursor } =
        found.map_err(OperatorError::store("cannot read the suspended processes"))?;
    let of_position = |position: StoredPosition| {
        let all: Vec<_> = position.item.all_suspended().map(|(who, one)| (who.to_owned(), one.clone())).collect();
        all.into_iter().map(move |(who, suspension)| SuspendedProcess { position: position.clone(), who, suspension })
    };
    let mut processes: Vec<_> = positions.into_iter().flat_map(of_position).collect();
    processes.retain(|one| {
        let process_type = one.position.item.process_type();
        selection.has(one.source(), process_type) || selection.has(one.source(), &one.name())
    });
    processes.sort_by(|one, other| one.suspension.since.cmp(&other.suspension.since));
    let more = more || processes.len() > selection.limit;
    processes.truncate(selection.limit);
    Ok(Page { items: processes, unreadable, more, cursor })
}

/// Lets the selected processes that are suspended go on, with the event that they could not handle, or after it; those whose event is
/// skipped have to be named.
pub async fn resume(
    stack: &Stack,
    options: &ResumeOptions,
    report: impl FnMut(&SuspendedProcess, Marked) -> io::Result<()>,
) -> Result<MarkCounts, OperatorError> {
    let ResumeOptions { marks, skip } = options;
    if *skip {
        marks.selection.check_each_named("skip an event of")?;
    }
    let queue = if marks.yes { Some(stack.queue(REACTIONS_QUEUE).await?) } else { None };
    let store = stack.store(&[]).await?;
    let Page { items: mut processes, unreadable, more, .. } = suspended(stack, &marks.selection).await?;
    if *skip {
        // One event of a position, and not one of each process in it.
        processes.retain(|one| marks.selection.has(one.source(), &one.name()));
    }
    let counts = MarkCounts { unreadable: unreadable.len(), more, ..MarkCounts::default() };
    let stopped_early = OperatorError::store(STOPPED_EARLY);
    let resume = async |one: &SuspendedProcess| {
        let SuspendedProcess { position, who, suspension } = one;
        let (process, handled) = (position.item.process_type().to_owned(), suspension.seq_num);
        let behind = BTreeMap::from([(position.source.clone(), handled + 1)]);
        let send = async |delay| match &queue {
            Some(queue) => queue.send_input(&process, &behind, delay).await,
            None => Ok(()),
        };
        // Another one of the position may have been resumed since it was listed.
        let mut moved = store.position(&position.source, &process).await.map_err(&stopped_early)?;
        if moved.item.suspended.get(who) != Some(suspension) {
            return Ok(false);
        }
        // Without the message, the process would get the event only after the next one of its aggregate. So it is sent first: if the
        // command ends in between, it is suspended as before.
        let begun = Instant::now();
        send(DELAY).await?;
        let to = PositionMove::Resume(who, handled + u64::from(*skip));
        let is_resumed = store.move_position(&mut moved, to).await.map_err(&stopped_early)?;
        if is_resumed
            && begun.elapsed() >= DELAY
            && let Err(error) = send(Duration::ZERO).await
        {
            // Suspended again, it is still listed. If the reactor has moved it meanwhile, it goes on without the message.
            let again = PositionMove::Suspend(who, handled, &suspension.error);
            store.move_position(&mut moved, again).await.map_err(&stopped_early)?;
            return Err(error);
        }
        Ok(is_resumed)
    };
    mark_each(stack, marks, counts, &processes, resume, report).await
}

/// The messages that wait for the reactor from which on no more are sent. With twice as many, its tick would send no deadlines,
/// and fire those that are due itself.
const MAX_WAITING: u64 = 50;

/// The pause until the messages that wait are counted again.
const PAUSE: Duration = Duration::from_secs(1);

/// Send the reactor the aggregates whose events the processes of a type have not handled.
///
/// For events whose message was lost, or was read by a release that does not know the type or the source: those during a
/// deployment that adds it, and those of the last seconds before the time of a restore. A dry run by default; `--yes` executes it.
///
/// The processes get all events of such an aggregate that they have not handled, in order: of one that they never followed, all
/// from the first on, however old. So look at the dry run, and limit it with `--since`. Suspended processes are left to
/// `daybook process resume`.
///
/// It can be repeated, and goes on where it ended: what the reactor has handled meanwhile is not sent again, and a message that it
/// does not need changes nothing.
#[derive(Clone, Debug, Args)]
pub struct CatchUpOptions {
    /// The type of the processes.
    #[arg(value_name = "TYPE")]
    pub process_type: String,
    /// Only aggregates that have changed since: 2026-11-20T08:00:00Z, or a duration before now, such as 30m, 2h, 7d.
    #[arg(long, value_name = "TIME", default_value = "1d")]
    pub since: Moment,
    /// Send them; without this option, the command is a dry run.
    #[arg(long)]
    pub yes: bool,
    /// Maximum aggregates per second that are sent. Ten times as many are compared.
    #[arg(long, value_name = "N", default_value = "100")]
    pub rate: NonZeroU32,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CatchUpCounts {
    pub dry_run: bool,
    pub since: String,
    pub compared: usize,
    /// Those with events that are not handled, which were sent.
    pub behind: usize,
    /// Those with such events that have not changed since.
    pub older: usize,
    pub suspended: usize,
    /// Rows of the index that cannot be read, and aggregates without metadata.
    pub unreadable: usize,
}

/// Compares all aggregates of the sources of a process, and sends those that are behind and have changed since. Reports each, with
/// the numbers of the events; or why it cannot be read.
pub async fn catch_up(
    stack: &Stack,
    options: &CatchUpOptions,
    mut report: impl FnMut(&str, Result<RangeInclusive<u64>, &str>) -> io::Result<()>,
) -> Result<CatchUpCounts, OperatorError> {
    let process = models(&stack.registry, slice::from_ref(&options.process_type))?[0];
    let types = sources(&stack.registry, process);
    if types.is_empty() {
        return Err(OperatorError::Usage(format!("{} is no process: it has no sources", options.process_type)));
    }
    if let Some(other) = stack.optional("REACTOR").filter(|_| options.yes && !stack.has_processes()) {
        return Err(OperatorError::Usage(format!("the stack has Reactor={other}: deploy it with Reactor=processes")));
    }
    let queue = if options.yes { Some(stack.queue(REACTIONS_QUEUE).await?) } else { None };
    let store = stack.store(SETTINGS_TO_FIND).await?;
    let selection = Selection { types, ..Selection::default() };
    selection.check(&store, &stack.registry).await?;
    let since = options.since.resolve(Timestamp::now());
    let mut counts = CatchUpCounts { dry_run: !options.yes, since: timestamp(since), ..CatchUpCounts::default() };
    let pacer = Pacer::new(options.rate, stack.interrupt.clone());
    let stopped_early = OperatorError::store(STOPPED_EARLY);
    let mut pages = selection.list(&stack.registry, &stack.interrupt, &store, None)?.chunks(ChangedAggregates::MAX);
    while let Some(page) = pages.next().await {
        let page = page.into_iter().collect::<Result<Vec<_>, _>>().map_err(&stopped_early)?;
        let keys: BTreeSet<_> = page.iter().filter_map(|listed| listed.key.clone()).collect();
        if pacer.turns(keys.len().div_ceil(COMPARED_PER_SENT)).await.is_none() {
            break;
        }
        let followed = store.admin().followed(&options.process_type, &keys).await.map_err(&stopped_early)?;
        let mut behind = BTreeMap::new();
        for (key, of) in followed.iter().filter(|(_, of)| of.handled().is_none_or(|handled| handled < of.version)) {
            match of.changed_at {
                _ if of.position.is_suspended() => counts.suspended += 1,
                Some(at) if at < since => counts.older += 1,
                _ => drop(behind.insert(key.clone(), of.version)),
            }
        }
        if let Some(queue) = queue.as_ref().filter(|_| !behind.is_empty()) {
            if pacer.turns(behind.len()).await.is_none() || wait_for_reactor(stack, queue).await?.is_none() {
                break;
            }
            queue.send_input(&options.process_type, &behind, Duration::ZERO).await?;
        }
        (counts.compared, counts.behind) = (counts.compared + keys.len(), counts.behind + behind.len());
        for (key, last) in &behind {
            report(&key.to_string(), Ok(followed[key].handled().unwrap_or_default() + 1..=*last))?;
        }
        for listed in page.iter().filter(|listed| !listed.key.as_ref().is_some_and(|key| followed.contains_key(key))) {
            counts.unreadable += 1;
            let reason = listed.unreadable.as_ref().map(|row| &*row.reason);
            report(&listed.name, Err(reason.unwrap_or("it has no metadata; check it with `daybook verify`")))?;
        }
        if let Some(last) = page.last() {
            (stack.progress)(last.fraction, format!("{} aggregates, at {}", counts.compared, last.name));
        }
    }
    Ok(counts)
}

fn sources(registry: &Registry, process: &dyn Model) -> Vec<String> {
    let names = registry.iter().map(Model::type_name).filter(|name| process.source(name).is_some());
    names.map(str::to_owned).collect()
}

/// Waits while many messages wait for the reactor, so that they do not delay deadlines; returns `None` after Ctrl-C.
async fn wait_for_reactor(stack: &Stack, queue: &StackQueue) -> Result<Option<()>, OperatorError> {
    while queue.counts().await?.visible >= MAX_WAITING {
        (stack.progress)(None, "waiting for the reactor".to_owned());
        if stack.interrupt.run_until_cancelled(sleep(PAUSE)).await.is_none() {
            return Ok(None);
        }
    }
    Ok(Some(()))
}
