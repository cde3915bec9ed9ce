//! The events of an aggregate as the input of processes.

use std::collections::BTreeSet;

use daybook_decider::{AggregateKey, CommandRequest, Input, Model, RecordedEvent, Source, UnreadableKind};
use daybook_event_store::{Page, PositionMove, StoredPosition};
use daybook_function_runtime::with_causes;
use daybook_table::{PositionItem, keys};
use metrics::counter;
use tokio::time::{Instant, sleep};

use crate::deliver::{Delivery, meta};
use crate::reaction::Failure;
use crate::reactor::Reactor;

/// Maximum events that are read at a time. After a crash, they are handled again, and their outcomes are known.
const MAX_EVENTS: usize = 100;

/// How often rows are read again that should be there, while an append becomes visible. After that, the message of events must
/// come again; dispatches are sent without the rows that are missing.
pub(crate) const MAX_EMPTY: u32 = 5;

/// Maximum processes of a type that follow an aggregate with positions of their own. With as many, an event that another one cannot
/// handle suspends the position of all.
const MAX_ALONE: usize = 20;

/// A process type, and the aggregate whose events it follows.
struct Following<'a> {
    process: &'a dyn Model,
    of: &'a Source,
    source: &'a AggregateKey,
    /// The processes that follow with positions of their own: each was suspended alone.
    alone: BTreeSet<String>,
}

/// Why an event is not handled, and which process should, if that is known.
struct NotHandled {
    failure: Failure,
    process: Option<String>,
}

impl From<Failure> for NotHandled {
    fn from(failure: Failure) -> Self {
        Self { failure, process: None }
    }
}

impl Reactor {
    /// Hands the new events of an aggregate, up to at least number `last`, to the processes that follow its type, or to those of
    /// one type `only`. Returns whether that is done; otherwise, its messages must come again.
    pub(crate) async fn follow(&self, source: &AggregateKey, only: Option<&str>, last: u64, cutoff: Instant) -> bool {
        let mut is_done = true;
        for process in self.registry.iter().filter(|process| only.is_none_or(|only| only == process.type_name())) {
            let Some(of) = process.source(&source.aggregate_type) else { continue };
            let following = Following { process, of, source, alone: BTreeSet::new() };
            is_done &= self.follow_from_all(following, last, cutoff).await.unwrap_or_else(|failure| {
                self.count_failed();
                tracing::warn!(%source, process = process.type_name(), ?failure, "events are not handled");
                false
            });
        }
        is_done
    }

    /// Hands the events to the processes of a type, from each of their positions on. One that fails stops no other.
    async fn follow_from_all(&self, mut following: Following<'_>, last: u64, cutoff: Instant) -> Result<bool, Failure> {
        'read: loop {
            let positions = self.store.positions(following.source, following.process.type_name()).await?;
            following.alone = positions.iter().filter_map(|one| one.item.process_id()).map(str::to_owned).collect();
            let mut result = Ok(true);
            for position in positions {
                match self.follow_from(&following, position, last, cutoff).await {
                    Ok(None) => continue 'read,
                    Ok(Some(is_done)) => result = result.map(|others| others && is_done),
                    Err(failure) => result = Err(failure),
                }
            }
            return result;
        }
    }

    /// Hands the events after a position to its processes. Returns whether that is done, or `None` if the positions have changed.
    async fn follow_from(
        &self,
        following: &Following<'_>,
        mut position: StoredPosition,
        last: u64,
        cutoff: Instant,
    ) -> Result<Option<bool>, Failure> {
        let mut empty = 0;
        while !position.item.is_suspended() {
            let before = position.item.seq_num;
            if Instant::now() >= cutoff {
                return Ok(Some(false));
            }
            let page = self.store.published_or_not(following.source, before, MAX_EVENTS).await?;
            let (handled, result) = self.handle_page(following, &position.item, &page, cutoff).await;
            let to = match &result {
                Err(NotHandled { failure: Failure::Permanent(error), process }) => {
                    // After progress, it is another event that fails.
                    let since = position.item.failing_since.as_deref().filter(|_| handled == before);
                    match self.gives_up(since) {
                        Some(false) => None,
                        Some(true) => {
                            return self.suspend(following, position, process.as_deref(), error).await;
                        }
                        None => Some(PositionMove::Fail(handled)),
                    }
                }
                // The time in which the event cannot be handled begins anew with the next failure.
                Err(_) if position.item.failing_since.is_some() => Some(PositionMove::To(handled)),
                _ => (handled > before).then_some(PositionMove::To(handled)),
            };
            if let Some(to) = to
                && !self.store.move_position(&mut position, to).await?
            {
                // Another invocation was faster.
                return Ok(None);
            }
            result.map_err(|not_handled| not_handled.failure)?;
            if handled >= last.max(page.cursor) && !page.more {
                return Ok(Some(true));
            }
            // While an append becomes visible, its events may be missing.
            if handled == before {
                empty += 1;
                if empty > MAX_EMPTY {
                    return Ok(Some(false));
                }
                sleep(self.queue.waits.after(empty)).await;
            }
        }
        Ok(Some(true))
    }

    /// Gives up the event after a position. The process that cannot handle it gets a position of its own, which is suspended, so
    /// that all others go on. The position itself is suspended if the process is not known, or if it is that of one process.
    async fn suspend(
        &self,
        following: &Following<'_>,
        mut position: StoredPosition,
        process: Option<&str>,
        error: &str,
    ) -> Result<Option<bool>, Failure> {
        let Following { source, alone, .. } = following;
        let (handled, is_alone) = (position.item.seq_num, position.item.process_id().is_some());
        if let Some(id) = process.filter(|_| !is_alone && alone.len() < MAX_ALONE) {
            position = StoredPosition::none(source, &format!("{}#{id}", position.item.process_type()));
        }
        if self.store.move_position(&mut position, PositionMove::Suspend(handled, error)).await? {
            self.count_failed();
            counter!("ReactionsGivenUp").increment(1);
            let (processes, event) = (position.item.processes(), handled + 1);
            tracing::error!(%source, processes, event, error, "the position is suspended");
        }
        Ok(None)
    }

    /// Hands the events of a page to a process. Returns the number of the last one that is handled.
    async fn handle_page(
        &self,
        following: &Following<'_>,
        position: &PositionItem,
        page: &Page<(RecordedEvent, bool), u64>,
        cutoff: Instant,
    ) -> (u64, Result<(), NotHandled>) {
        let mut handled = position.seq_num;
        for (event, is_published) in &page.items {
            if event.seq_num != handled + 1 || Instant::now() >= cutoff {
                break;
            }
            if *is_published && let Err(not_handled) = self.handle_event(following, position, event, cutoff).await {
                return (handled, Err(not_handled));
            }
            handled = event.seq_num;
        }
        let is_next = |row: &&daybook_event_store::UnreadableRow| row.seq_num() == Some(handled + 1);
        let unreadable = page.unreadable.iter().find(is_next);
        let result = unreadable.map(|row| Failure::Permanent(format!("row {row}: {}", row.reason)));
        (handled, result.map_or(Ok(()), |failure| Err(failure.into())))
    }

    /// Hands an event to the process that gets it, if that has this position.
    async fn handle_event(
        &self,
        following: &Following<'_>,
        position: &PositionItem,
        event: &RecordedEvent,
        cutoff: Instant,
    ) -> Result<(), NotHandled> {
        let Following { of, source, alone, .. } = following;
        let input = of.input(&source.id, event).map_err(|error| match error.kind {
            UnreadableKind::Newer => Failure::Transient(with_causes(&error)),
            UnreadableKind::Corrupt | UnreadableKind::Panicked => Failure::Permanent(with_causes(&error)),
        })?;
        let Some(Input { process, commands }) = input else { return Ok(()) };
        let has_position = position.process_id().map_or(!alone.contains(&process.id), |id| id == process.id);
        if !has_position {
            return Ok(());
        }
        let handled = self.deliver_input(&process, commands, source, event, cutoff).await;
        handled.map_err(|failure| NotHandled { failure, process: Some(process.id) })
    }

    async fn deliver_input(
        &self,
        process: &AggregateKey,
        mut commands: Vec<CommandRequest>,
        source: &AggregateKey,
        event: &RecordedEvent,
        cutoff: Instant,
    ) -> Result<(), Failure> {
        for command in &mut commands {
            *command = self.without_forgotten(process, command.clone()).await?;
        }
        let delivery = Delivery {
            to: process,
            commands: &commands,
            key: keys::input_key(source, event.seq_num),
            digest: "input",
            row: None,
            dispatch: None,
            meta: meta(event.event_id.to_string(), event.meta.correlation_id.clone()),
        };
        self.deliver(delivery, cutoff).await?;
        counter!("EventsHandled").increment(1);
        Ok(())
    }
}
