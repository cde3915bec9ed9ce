//! The operations on deadlines: reads them, and marks those whose commands have failed.

use std::io;
use std::num::NonZeroU32;
use std::str::FromStr;

use clap::Args;
use daybook_event_store::{DeadlineMark, EventStore, FoundDeadlines, StoredDeadline};
use daybook_table::{AggregateKey, DeadlineState};
use jiff::Timestamp;
use serde::Serialize;

use crate::error::OperatorError;
use crate::pacing::Pacer;
use crate::selection::{AggregateName, check_shards};
use crate::stack::{SETTINGS_TO_FIND, Stack};

/// Deadlines on the command line: those of an aggregate, `reservation/7`, or one of them, `reservation/7/hold`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadlineName {
    aggregate: AggregateKey,
    name: Option<String>,
}

// Without a documentation comment: it would replace the help text of the command that contains the options.
#[derive(Clone, Debug, Args)]
pub struct DeadlineSelection {
    /// Only those of this aggregate, or only the one with this name; can be repeated. Default: all.
    #[arg(value_name = "TYPE/ID[/NAME]")]
    pub names: Vec<DeadlineName>,
    /// Maximum deadlines, the earliest ones.
    #[arg(long, value_name = "N", default_value = "1000")]
    pub limit: usize,
}

// The same.
#[derive(Clone, Debug, Args)]
pub struct MarkOptions {
    #[command(flatten)]
    pub selection: DeadlineSelection,
    /// Write it; without this option, the command is a dry run.
    #[arg(long = "yes")]
    pub writes: bool,
    /// Maximum deadlines per second.
    #[arg(long, value_name = "N", default_value = "100")]
    pub rate: NonZeroU32,
}

/// What became of a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marked {
    WouldMark,
    Marked,
    /// Its row has changed since it was read.
    Changed,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MarkCounts {
    pub dry_run: bool,
    pub selected: usize,
    pub marked: usize,
    pub changed: usize,
    pub unreadable: usize,
    /// Whether there are more than the limit.
    pub more: bool,
}

impl FromStr for DeadlineName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (aggregate, name) = match text.match_indices('/').nth(1) {
            Some((end, _)) => (&text[..end], Some(text[end + 1..].to_owned())),
            None => (text, None),
        };
        let AggregateName(aggregate) = aggregate.parse()?;
        Ok(Self { aggregate, name })
    }
}

/// Reads the selected deadlines: those that are pending, or those that have `failed`; of named aggregates, those in any state, or
/// those that have `failed`.
pub async fn find(stack: &Stack, selection: &DeadlineSelection, failed: bool) -> Result<FoundDeadlines, OperatorError> {
    find_in(stack, &stack.store(SETTINGS_TO_FIND).await?, selection, failed).await
}

async fn find_in(
    stack: &Stack,
    store: &EventStore,
    selection: &DeadlineSelection,
    failed: bool,
) -> Result<FoundDeadlines, OperatorError> {
    let unread = OperatorError::store("cannot read the deadlines");
    if selection.names.is_empty() {
        let state = if failed { DeadlineState::Failed } else { DeadlineState::Pending };
        if !failed {
            check_shards(store, &stack.first_events()).await?;
        }
        return store.deadlines(state, Timestamp::MAX, selection.limit).await.map_err(&unread);
    }
    let mut found = FoundDeadlines::default();
    for DeadlineName { aggregate, name } in &selection.names {
        let of_aggregate = store.deadlines_of(aggregate).await.map_err(&unread)?;
        found.unreadable.extend(of_aggregate.unreadable);
        found.deadlines.extend(of_aggregate.deadlines.into_iter().filter(|StoredDeadline { item, .. }| {
            let is_named = name.as_deref().is_none_or(|name| name == item.name());
            is_named && (!failed || item.state() == DeadlineState::Failed)
        }));
    }
    found.more = found.deadlines.len() > selection.limit;
    found.deadlines.truncate(selection.limit);
    Ok(found)
}

/// Marks the selected deadlines that have failed: as pending, so that the reactor fires them again; or with `drops` as fired, which
/// have to be named.
pub async fn mark(
    stack: &Stack,
    options: &MarkOptions,
    drops: bool,
    mut report: impl FnMut(&StoredDeadline, Marked) -> io::Result<()>,
) -> Result<MarkCounts, OperatorError> {
    if drops && options.selection.names.is_empty() {
        return Err(OperatorError::Usage("name the deadlines to drop, as TYPE/ID or TYPE/ID/NAME".to_owned()));
    }
    let store = stack.store(SETTINGS_TO_FIND).await?;
    let mark = if drops { DeadlineMark::Fired } else { DeadlineMark::Pending };
    let found = find_in(stack, &store, &options.selection, true).await?;
    let pacer = Pacer::new(options.rate, stack.interrupt.clone());
    let (dry_run, selected, unreadable, more) =
        (!options.writes, found.deadlines.len(), found.unreadable.len(), found.more);
    let mut counts = MarkCounts { dry_run, selected, unreadable, more, ..MarkCounts::default() };
    for deadline in &found.deadlines {
        if dry_run {
            report(deadline, Marked::WouldMark)?;
            continue;
        }
        if pacer.turn().await.is_none() {
            break;
        }
        let is_marked = store.mark_deadline(deadline, mark).await;
        let (marked, count) = match is_marked.map_err(OperatorError::store("stopped early, run it again"))? {
            true => (Marked::Marked, &mut counts.marked),
            false => (Marked::Changed, &mut counts.changed),
        };
        *count += 1;
        report(deadline, marked)?;
    }
    Ok(counts)
}
