//! The operations on deadlines and dispatches, whose rows are alike: reads them, and marks those whose commands have failed.

use std::io;

use daybook_event_store::{DeadlineMark, FoundDeadlines, StoredDeadline};
use daybook_table::DeadlineState;
use jiff::Timestamp;

use crate::error::OperatorError;
use crate::marking::{MarkCounts, MarkOptions, Marked, RowSelection, STOPPED_EARLY, mark_each};
use crate::selection::check_shards;
use crate::stack::{SETTINGS_TO_FIND, Stack};

/// Reads the selected deadlines and dispatches: those that are pending, or those that have `failed`; of named aggregates, those in
/// any state, or those that have `failed`.
pub async fn find(stack: &Stack, selection: &RowSelection, failed: bool) -> Result<FoundDeadlines, OperatorError> {
    let store = stack.store(SETTINGS_TO_FIND).await?;
    let unread = OperatorError::store("cannot read the deadlines");
    if selection.names.is_empty() {
        let state = if failed { DeadlineState::Failed } else { DeadlineState::Pending };
        if !failed {
            check_shards(&store, &stack.first_events()).await?;
        }
        return store.deadlines(state, Timestamp::MAX, selection.limit).await.map_err(&unread);
    }
    let mut found = FoundDeadlines::default();
    for row in &selection.names {
        let of_aggregate = store.deadlines_of(&row.aggregate).await.map_err(&unread)?;
        found.unreadable.extend(of_aggregate.unreadable);
        found.deadlines.extend(of_aggregate.deadlines.into_iter().filter(|StoredDeadline { item, .. }| {
            row.is_of(item.name()) && (!failed || item.state() == DeadlineState::Failed)
        }));
    }
    found.more = found.deadlines.len() > selection.limit;
    found.deadlines.truncate(selection.limit);
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
    let FoundDeadlines { deadlines, unreadable, more } = find(stack, &options.selection, true).await?;
    let counts = MarkCounts { unreadable: unreadable.len(), more, ..MarkCounts::default() };
    let stopped_early = OperatorError::store(STOPPED_EARLY);
    let mark = async |deadline: &StoredDeadline| store.mark_deadline(deadline, mark).await.map_err(&stopped_early);
    mark_each(stack, options, counts, &deadlines, mark, report).await
}
