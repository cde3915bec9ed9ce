//! The operations on deadlines and dispatches, whose rows are alike: reads them, and marks those whose commands have failed.
//! `processes` resumes suspended processes with the same options, and with `mark_each`.

use std::io;
use std::num::NonZeroU32;
use std::str::FromStr;

use clap::Args;
use daybook_event_store::{DeadlineMark, Page, StoredDeadline};
use daybook_table::{AggregateKey, DeadlineState};
use jiff::Timestamp;
use serde::Serialize;

use crate::error::OperatorError;
use crate::pacing::Pacer;
use crate::selection::check_shards;
use crate::stack::{SETTINGS_TO_FIND, Stack};

/// Reads the selected deadlines and dispatches: those that are pending, or those that have `failed`; of named aggregates, those in
/// any state, or those that have `failed`.
pub async fn find(
    stack: &Stack,
    selection: &RowSelection,
    failed: bool,
) -> Result<Page<StoredDeadline>, OperatorError> {
    let store = stack.store(SETTINGS_TO_FIND).await?;
    let unread = OperatorError::store("cannot read the deadlines");
    if selection.names.is_empty() {
        let state = if failed { DeadlineState::Failed } else { DeadlineState::Pending };
        if !failed {
            check_shards(&store, &stack.first_events()).await?;
        }
        return store.deadlines(state, Timestamp::MAX, selection.limit).await.map_err(&unread);
    }
    let mut found = Page::empty(String::new());
    for row in &selection.names {
        let of_aggregate = store.deadlines_of(&row.aggregate).await.map_err(&unread)?;
        found.unreadable.extend(of_aggregate.unreadable);
        found.items.extend(of_aggregate.items.into_iter().filter(|StoredDeadline { item, .. }| {
            row.is_of(item.name()) && (!failed || item.state() == DeadlineState::Failed)
        }));
    }
    found.more = found.items.len() > selection.limit;
    found.items.truncate(selection.limit);
    Ok(found)
}

/// Marks the selected deadlines and dispatches that have failed: as pending, so that the reactor fires or sends them again; or with
/// `drops` as fired, which have to be named.
pub async fn mark(
    stack: &Stack,
    options: &MarkOptions,
    drops: bool,
    report: impl FnMut(&StoredDeadline, Marked) -> io::Result<()>,
) -> Result<MarkCounts, OperatorError> {
    if drops {
        options.selection.check_named("drop")?;
    }
    let store = stack.store(SETTINGS_TO_FIND).await?;
    let mark = if drops { DeadlineMark::Fired } else { DeadlineMark::Pending };
    let Page { items: deadlines, unreadable, more, .. } = find(stack, &options.selection, true).await?;
    let counts = MarkCounts { unreadable: unreadable.len(), more, ..MarkCounts::default() };
    let stopped_early = OperatorError::store(STOPPED_EARLY);
    let mark = async |deadline: &StoredDeadline| store.mark_deadline(deadline, mark).await.map_err(&stopped_early);
    mark_each(stack, options, counts, &deadlines, mark, report).await
}

pub(crate) const STOPPED_EARLY: &str = "stopped early, run it again";

/// Rows on the command line: those of an aggregate, `reservation/7`, or one of them, `reservation/7/hold`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowName {
    aggregate: AggregateKey,
    name: Option<String>,
}

// Without a documentation comment: it would replace the help text of the command that contains the options.
#[derive(Clone, Debug, Args)]
pub struct RowSelection {
    /// Only those of this aggregate, or only the one with this name; can be repeated. Default: all.
    #[arg(value_name = "TYPE/ID[/NAME]")]
    pub names: Vec<RowName>,
    /// Maximum number, the earliest ones.
    #[arg(long, value_name = "N", default_value = "1000")]
    pub limit: usize,
}

// The same.
#[derive(Clone, Debug, Args)]
pub struct MarkOptions {
    #[command(flatten)]
    pub selection: RowSelection,
    /// Write it; without this option, the command is a dry run.
    #[arg(long)]
    pub yes: bool,
    /// Maximum number per second.
    #[arg(long, value_name = "N", default_value = "100")]
    pub rate: NonZeroU32,
}

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

impl FromStr for RowName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (aggregate, name) = match text.match_indices('/').nth(1) {
            Some((end, _)) => (&text[..end], Some(text[end + 1..].to_owned())),
            None => (text, None),
        };
        let aggregate = aggregate.parse()?;
        Ok(Self { aggregate, name })
    }
}

impl RowName {
    fn is_of(&self, name: &str) -> bool {
        self.name.as_deref().is_none_or(|selected| selected == name)
    }
}

impl RowSelection {
    /// Whether it has no names, or names this row of an aggregate.
    pub(crate) fn has(&self, aggregate: &AggregateKey, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|row| row.aggregate == *aggregate && row.is_of(name))
    }

    /// Checks that it has names, and each of one row, for what cannot be taken back.
    pub(crate) fn check_each_named(&self, doing: &str) -> Result<(), OperatorError> {
        match self.names.iter().find(|row| row.name.is_none()) {
            Some(RowName { aggregate, .. }) => Err(OperatorError::Usage(format!(
                "{aggregate} can mean several: name each to {doing}, as {aggregate}/NAME"
            ))),
            None => self.check_named(doing),
        }
    }

    /// Checks that it has names, for what cannot be taken back.
    pub(crate) fn check_named(&self, doing: &str) -> Result<(), OperatorError> {
        match self.names.is_empty() {
            true => Err(OperatorError::Usage(format!("name those to {doing}, as TYPE/ID or TYPE/ID/NAME"))),
            false => Ok(()),
        }
    }
}

/// Marks each of these rows, at the rate of the options, until the stack is interrupted. `mark` returns `false` for one that has
/// changed since it was read.
pub(crate) async fn mark_each<T>(
    stack: &Stack,
    options: &MarkOptions,
    mut counts: MarkCounts,
    rows: &[T],
    mark: impl AsyncFn(&T) -> Result<bool, OperatorError>,
    mut report: impl FnMut(&T, Marked) -> io::Result<()>,
) -> Result<MarkCounts, OperatorError> {
    (counts.dry_run, counts.selected) = (!options.yes, rows.len());
    let pacer = Pacer::new(options.rate, stack.interrupt.clone());
    for row in rows {
        if counts.dry_run {
            report(row, Marked::WouldMark)?;
            continue;
        }
        if pacer.turn().await.is_none() {
            break;
        }
        let (marked, count) = match mark(row).await? {
            true => (Marked::Marked, &mut counts.marked),
            false => (Marked::Changed, &mut counts.changed),
        };
        *count += 1;
        report(row, marked)?;
    }
    Ok(counts)
}
