//! The dispatches of a process: the commands to other aggregates that its state asks for.

use std::collections::BTreeSet;
use std::slice;

use daybook_decider::{AggregateKey, CommandRequest, DeclaredDeadline, Model};
use daybook_event_store::{DeadlineMark, LoadOptions, StoredDeadline};
use daybook_function_runtime::with_causes;
use daybook_table::{DeadlineState, DueDeadline, keys};
use metrics::counter;
use tokio::time::{Instant, sleep};

use crate::deliver::Delivery;
use crate::fire::meta_of;
use crate::follow::MAX_EMPTY;
use crate::reaction::{Failure, GONE};
use crate::reactor::Reactor;

/// What is left of the rows of `fulfilment/7`, after its dispatch `pay` is done and `ship` has failed for a moment: the deadline
/// `timeout`, and `ship`.
pub(crate) struct Dispatched {
    pub(crate) deadlines: BTreeSet<String>,
    /// The name of the dispatch that has to be tried again. Those after it wait; the tick sends them again.
    pub(crate) again: Option<String>,
}

impl Reactor {
    /// Sends the dispatches of a process that are pending, each after the one before is done or has failed, until one has to be
    /// tried again.
    pub(crate) async fn dispatch_all(
        &self,
        process: &AggregateKey,
        model: &dyn Model,
        cutoff: Instant,
    ) -> Result<Dispatched, Failure> {
        let mut waits = 0;
        loop {
            let mut rows = self.store.deadlines_of(process).await?.items;
            // A row may be visible before the events that have set it, and before other rows of the same append.
            let at_least = rows.iter().map(|row| row.item.seq_num).max().unwrap_or_default();
            let options = LoadOptions { at_least, ..LoadOptions::default() };
            let (version, current) = self.declared(process, model, options).await?;
            let has_row = |declared: &DeclaredDeadline| rows.iter().any(|row| row.item.name() == declared.name);
            let is_complete = current.iter().filter(|declared| declared.to.is_some()).all(has_row);
            if !is_complete && waits < MAX_EMPTY && Instant::now() < cutoff {
                waits += 1;
                sleep(self.queue.waits.after(waits)).await;
                continue;
            }
            rows.retain(|row| row.item.state() == DeadlineState::Pending && row.item.seq_num <= version);
            let place =
                |row: &StoredDeadline| current.iter().position(|declared| declared.is_dispatch(row.item.name()));
            let (dispatches, deadlines): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| place(row).is_some());
            let next = dispatches.into_iter().min_by_key(|row| (row.item.seq_num, place(row)));
            let deadlines = deadlines.iter().map(|row| row.item.name().to_owned()).collect();
            let Some(row) = next else { return Ok(Dispatched { deadlines, again: None }) };
            let name = row.item.name().to_owned();
            // The command is that of the state which has set the row, so it is the same whenever the row is handled, also if
            // another append withdraws the dispatch and declares it again meanwhile.
            let at_row = match row.item.seq_num {
                number if number == version => None,
                number => {
                    let options = LoadOptions { at: Some(number), ..LoadOptions::default() };
                    Some(self.declared(process, model, options).await?.1)
                }
            };
            let of_row = at_row.iter().flatten().find(|declared| declared.is_dispatch(&name));
            let declared = of_row.or(current.iter().find(|declared| declared.is_dispatch(&name)));
            let Some(DeclaredDeadline { to: Some(to), command, .. }) = declared else {
                return Ok(Dispatched { deadlines, again: Some(name) });
            };
            let due = DueDeadline { due: row.due, key: process.clone(), name };
            let is_done = Instant::now() < cutoff && {
                let result = self.dispatch(process, model, &row, to, command, cutoff).await;
                self.unmark_failing(&row, &result).await;
                self.end_attempt(&due, Some(to), result).await
            };
            if !is_done {
                return Ok(Dispatched { deadlines, again: Some(due.name) });
            }
        }
    }

    /// What a process declares, and its version.
    async fn declared(
        &self,
        process: &AggregateKey,
        model: &dyn Model,
        options: LoadOptions,
    ) -> Result<(u64, Vec<DeclaredDeadline>), Failure> {
        let loaded = self.store.load_with(model, process, options).await?;
        let declared = model.deadlines(&loaded.folded).map_err(|panic| Failure::Permanent(with_causes(&panic)))?;
        Ok((loaded.version(), declared))
    }

    /// Sends one dispatch, and the answer to the process. One whose row has changed meanwhile has no effect.
    async fn dispatch(
        &self,
        process: &AggregateKey,
        model: &dyn Model,
        row: &StoredDeadline,
        to: &AggregateKey,
        command: &CommandRequest,
        cutoff: Instant,
    ) -> Result<(), Failure> {
        let (name, number, target) = (row.item.name(), row.item.seq_num, to.to_string());
        if let Some(first) = row.item.to.as_ref().filter(|first| **first != target) {
            let changed =
                format!("its target was {first}, and is {target} in this release: restore it, or drop the dispatch");
            return Err(Failure::Permanent(changed));
        }
        let command = &self.without_forgotten(process, command.clone()).await?;
        let delivery = Delivery {
            to,
            commands: slice::from_ref(command),
            key: format!("{}{name} {number}", keys::dispatch_keys(process)),
            // Not the data: the same may have another form, with personal values forgotten or a map in another order.
            digest: &command.command,
            row: None,
            dispatch: Some(row),
            meta: meta_of(row),
        };
        let Some((_, rejection)) = self.deliver(delivery, cutoff).await? else {
            tracing::info!(%process, name, %to, "the dispatch was withdrawn, set again or marked while it was sent");
            return Ok(());
        };
        counter!("CommandsDispatched").increment(1);
        let answered = model
            .source(&to.aggregate_type)
            .map(|source| source.answered(&to.id, command, rejection.as_ref()))
            .transpose();
        if let Some(answer) = answered.map_err(Failure::Permanent)?.flatten() {
            let delivery = Delivery {
                to: process,
                commands: slice::from_ref(&answer),
                key: keys::answer_key(name, number),
                digest: "answer",
                row: Some(name),
                dispatch: None,
                meta: meta_of(row),
            };
            if self.deliver(delivery, cutoff).await?.is_some_and(|(response, _)| response.status == GONE) {
                return Ok(());
            }
        }
        Ok(self.store.mark_deadline(row, DeadlineMark::Fired).await.map(drop)?)
    }
}
