//! The operations on the positions of processes that are suspended, because an event cannot be handled.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use clap::Args;
use daybook_event_store::{FoundPositions, PositionMove, StoredPosition};

use crate::error::OperatorError;
use crate::marking::{MarkCounts, MarkOptions, Marked, RowSelection, STOPPED_EARLY, mark_each};
use crate::stack::{REACTIONS_QUEUE, Stack};

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
        let (process, handled) = (position.item.process_type().to_owned(), position.item.seq_num);
        let behind = BTreeMap::from([(position.source.clone(), handled + 1)]);
        let send = async |delay| match &queue {
            Some(queue) => queue.send_input(&process, &behind, delay).await,
            None => Ok(()),
        };
        // Without the message, the processes would get the event only after the next one of its aggregate. So it is sent first: if
        // the command ends in between, the position is suspended as before.
        let begun = Instant::now();
        send(DELAY).await?;
        let to = PositionMove::To(handled + u64::from(*skip));
        let mut moved = position.clone();
        let is_resumed = store.move_position(&mut moved, to).await.map_err(&stopped_early)?;
        if is_resumed
            && begun.elapsed() >= DELAY
            && let Err(error) = send(Duration::ZERO).await
        {
            // Suspended again, it is still listed. If the reactor has moved it meanwhile, it goes on without the message.
            let reason = position.item.error.as_deref().unwrap_or_default();
            let again = PositionMove::Suspend(handled, reason);
            store.move_position(&mut moved, again).await.map_err(&stopped_early)?;
            return Err(error);
        }
        Ok(is_resumed)
    };
    mark_each(stack, marks, counts, &positions, resume, report).await
}
