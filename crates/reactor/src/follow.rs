//! The events of an aggregate as the input of processes.

use daybook_decider::{AggregateKey, CommandRequest, Input, Model, RecordedEvent, Source, UnreadableKind};
use daybook_event_store::{Page, PositionMove};
use daybook_function_runtime::with_causes;
use daybook_table::{PositionItem, keys};
use futures_util::future::join_all;
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

/// Maximum processes of a type that are suspended in the events of an aggregate. An event that another one cannot handle suspends all.
const MAX_SUSPENDED: usize = 20;

/// A process type, and the aggregate whose events it follows.
struct Following<'a> {
    process: &'a dyn Model,
    of: &'a Source,
    source: &'a AggregateKey,
}

/// Why an event is not handled, and the id of the process that should, if that is known.
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
        let processes = self.registry.iter().filter(|process| only.is_none_or(|only| only == process.type_name()));
        let followings = processes
            .filter_map(|process| Some(Following { process, of: process.source(&source.aggregate_type)?, source }));
        // Concurrently: a type that has much to catch up with delays no other.
        let handled = join_all(followings.map(async |following| {
            self.handle_events(&following, last, cutoff).await.unwrap_or_else(|failure| {
                self.count_failed();
                tracing::warn!(%source, process = following.process.type_name(), ?failure, "events are not handled");
                false
            })
        }));
        handled.await.into_iter().all(|is_done| is_done)
    }

    async fn handle_events(&self, following: &Following<'_>, last: u64, cutoff: Instant) -> Result<bool, Failure> {
        let &Following { process, source, .. } = following;
        let (process, mut empty) = (process.type_name(), 0);
        let mut position = self.store.position(source, process).await?;
        while let Some((alone, before)) = position.item.next() {
            let alone = alone.map(str::to_owned);
            if Instant::now() >= cutoff {
                return Ok(false);
            }
            let page = self.store.published_or_not(source, before, MAX_EVENTS).await?;
            let at = (&position.item, alone.as_deref(), before);
            let (handled, result) = self.handle_page(following, at, &page, cutoff).await;
            let to = self.move_after(&position.item, (alone.as_deref(), before, handled), &result);
            if let Some(to) = to {
                if !self.store.move_position(&mut position, to).await? {
                    // Another invocation was faster.
                    position = self.store.position(source, process).await?;
                    continue;
                }
                if let PositionMove::Suspend(who, _, error) = to {
                    self.count_failed();
                    counter!("ReactionsGivenUp").increment(1);
                    let (name, event) = (position.item.name_of(who), handled + 1);
                    tracing::error!(%source, process = name, event, error, "the process is suspended");
                    continue;
                }
            }
            result.map_err(|not_handled| not_handled.failure)?;
            if alone.is_none() && handled >= last.max(page.cursor) && !page.more {
                return Ok(true);
            }
            // While an append becomes visible, its events may be missing.
            if handled == before {
                empty += 1;
                if empty > MAX_EMPTY {
                    tracing::warn!(%source, process, handled, last, "the events are not visible yet, tries again");
                    return Ok(false);
                }
                sleep(self.queue.waits.after(empty)).await;
            }
        }
        Ok(true)
    }

    /// How the position moves after the events up to `handled` were handled, and the result of the next one.
    fn move_after<'a>(
        &self,
        position: &PositionItem,
        (alone, before, handled): (Option<&'a str>, u64, u64),
        result: &'a Result<(), NotHandled>,
    ) -> Option<PositionMove<'a>> {
        let moved = handled > before;
        let Err(NotHandled { failure: Failure::Permanent(error), process }) = result else {
            // The time in which an event cannot be handled begins anew with the next failure.
            let ends_failing = result.is_err() && position.failing_since.is_some();
            return match alone {
                Some(alone) => moved.then_some(PositionMove::Resume(alone, handled)),
                None => (moved || ends_failing).then_some(PositionMove::To(handled)),
            };
        };
        if alone.is_none() {
            // After progress, it is another event that fails.
            let since = position.failing_since.as_deref().filter(|_| !moved);
            match self.gives_up(since) {
                Some(true) => {}
                Some(false) => return None,
                None => return Some(PositionMove::Fail(handled)),
            }
        }
        // One that was resumed has had its time.
        let has_place = position.suspended.len() < MAX_SUSPENDED;
        let who = alone.or(process.as_deref().filter(|_| has_place)).unwrap_or(PositionItem::ALL);
        Some(PositionMove::Suspend(who, handled, error))
    }

    /// Hands the events of a page after a number to the processes that have this position, or to one alone, up to those that the others
    /// have handled. Returns the number of the last one that is handled.
    async fn handle_page(
        &self,
        following: &Following<'_>,
        (position, alone, before): (&PositionItem, Option<&str>, u64),
        page: &Page<(RecordedEvent, bool), u64>,
        cutoff: Instant,
    ) -> (u64, Result<(), NotHandled>) {
        let mut handled = before;
        let is_end = |handled| alone.is_some() && handled >= position.seq_num;
        let is_for = |id: &str| alone.map_or(!position.suspended.contains_key(id), |alone| alone == id);
        for (event, is_published) in &page.items {
            if event.seq_num != handled + 1 || is_end(handled) || Instant::now() >= cutoff {
                break;
            }
            if *is_published && let Err(not_handled) = self.handle_event(following, is_for, event, cutoff).await {
                return (handled, Err(not_handled));
            }
            handled = event.seq_num;
        }
        let is_next =
            |row: &&daybook_event_store::UnreadableRow| !is_end(handled) && row.seq_num() == Some(handled + 1);
        let unreadable = page.unreadable.iter().find(is_next);
        let result = unreadable.map(|row| Failure::Permanent(format!("row {row}: {}", row.reason)));
        (handled, result.map_or(Ok(()), |failure| Err(failure.into())))
    }

    async fn handle_event(
        &self,
        following: &Following<'_>,
        is_for: impl Fn(&str) -> bool,
        event: &RecordedEvent,
        cutoff: Instant,
    ) -> Result<(), NotHandled> {
        let &Following { of, source, .. } = following;
        let input = of.input(&source.id, event).map_err(|error| match error.kind {
            UnreadableKind::Newer => Failure::Transient(with_causes(&error)),
            UnreadableKind::Corrupt | UnreadableKind::Panicked => Failure::Permanent(with_causes(&error)),
        })?;
        let Some(Input { process, commands }) = input.filter(|input| is_for(&input.process.id)) else { return Ok(()) };
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
