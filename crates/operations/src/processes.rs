//! The operations on the positions of processes that are suspended, because an event cannot be handled.

use std::collections::BTreeMap;
use std::io;

use clap::Args;
use daybook_event_store::{FoundPositions, PositionMove, StoredPosition};

use crate::error::OperatorError;
use crate::marking::{MarkCounts, MarkOptions, Marked, RowSelection, STOPPED_EARLY, mark_each};
use crate::stack::{REACTIONS_QUEUE, Stack};

// Without a documentation comment: it would replace the help text of the command that contains the options.
#[derive(Clone, Debug, Args)]
pub struct ResumeOptions {
    #[command(flatten)]
    pub marks: MarkOptions,
    /// Go on after the event that cannot be handled: the processes never get it.
    #[arg(long)]
    pub skip: bool,
}

/// Reads the selected positions that are suspended. The name of one is the type of its processes.
pub async fn suspended(stack: &Stack, selection: &RowSelection) -> Result<FoundPositions, OperatorError> {
    // The limit is that of the selected ones.
    let limit = if selection.names.is_empty() { selection.limit } else { usize::MAX };
    let found = stack.store(&[]).await?.suspended_positions(limit).await;
    let mut found = found.map_err(OperatorError::store("cannot read the suspended positions"))?;
    found.positions.retain(|position| selection.has(&position.source, position.item.process_type()));
    found.more |= found.positions.len() > selection.limit;
    found.positions.truncate(selection.limit);
    Ok(found)
}

/// Lets the selected positions that are suspended go on, with the event that could not be handled, or after it; those whose event
/// is skipped have to be named.
pub async fn resume(
    stack: &Stack,
    options: &ResumeOptions,
    report: impl FnMut(&StoredPosition, Marked) -> io::Result<()>,
) -> Result<MarkCounts, OperatorError> {
    let ResumeOptions { marks, skip } = options;
    if *skip {
        marks.selection.check_named("skip an event of")?;
    }
    let queue = if marks.writes { Some(stack.queue(REACTIONS_QUEUE).await?) } else { None };
    let store = stack.store(&[]).await?;
    let FoundPositions { positions, unreadable, more } = suspended(stack, &marks.selection).await?;
    let counts = MarkCounts { unreadable: unreadable.len(), more, ..MarkCounts::default() };
    let stopped_early = OperatorError::store(STOPPED_EARLY);
    let resume = async |position: &StoredPosition| {
        let mut position = position.clone();
        let (before, error) = (position.item.seq_num, position.item.error.clone().unwrap_or_default());
        let handled = before + u64::from(*skip);
        let is_resumed = store.move_position(&mut position, PositionMove::To(handled)).await.map_err(&stopped_early)?;
        // Without the message, the processes would get the event only after the next one of its aggregate.
        if let Some(queue) = queue.as_ref().filter(|_| is_resumed)
            && let Err(failed) = queue.send_changed(&BTreeMap::from([(position.source.clone(), before + 1)])).await
        {
            store.move_position(&mut position, PositionMove::Suspend(before, &error)).await.map_err(&stopped_early)?;
            return Err(failed);
        }
        Ok(is_resumed)
    };
    mark_each(stack, marks, counts, &positions, resume, report).await
}
