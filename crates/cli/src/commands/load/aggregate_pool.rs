//! The aggregates that get one request at a time.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::workload::{Script, Workload};

/// The aggregates of a run that are not hot. A sender takes one for each request, so no other sender writes it meanwhile, and
/// the commands of each aggregate arrive in their order.
pub(super) struct AggregatePool<'a> {
    workload: &'a Workload,
    state: Mutex<PoolState<'a>>,
}

#[derive(Default)]
struct PoolState<'a> {
    /// The number of aggregates that were begun.
    begun: usize,
    /// Aggregates that exist and have commands left.
    idle: VecDeque<PooledAggregate<'a>>,
    /// The path of the last aggregate that got all its commands and was not deleted.
    finished: Option<String>,
    /// The number of reads that became commands, and were not made up for.
    owed_reads: u64,
}

/// The aggregate of a request.
pub(super) enum TakenAggregate<'a> {
    /// The path to read, and the aggregate if it must be put back.
    ToRead(String, Option<PooledAggregate<'a>>),
    /// The aggregate that gets its next command.
    ForCommand(PooledAggregate<'a>),
}

/// An aggregate that one sender uses.
pub(super) struct PooledAggregate<'a> {
    pub(super) script: &'a Script,
    pub(super) id: String,
    /// The number of commands that were accepted after the creation; `None` before the creation.
    pub(super) accepted: Option<usize>,
}

impl<'a> AggregatePool<'a> {
    pub(super) fn new(workload: &'a Workload) -> Self {
        Self { workload, state: Mutex::default() }
    }

    /// The aggregate for the next request. A read for which no aggregate exists becomes a command, and a later command becomes
    /// a read instead.
    pub(super) fn take(&self, is_read: bool) -> TakenAggregate<'a> {
        let mut state = self.state();
        if is_read || state.owed_reads > 0 {
            let found = match state.idle.pop_front() {
                Some(idle) => Some((idle.path(), Some(idle))),
                None => state.finished.clone().map(|path| (path, None)),
            };
            match found {
                Some((path, idle)) => {
                    state.owed_reads -= u64::from(!is_read);
                    return TakenAggregate::ToRead(path, idle);
                }
                None => state.owed_reads += u64::from(is_read),
            }
        }
        if let Some(idle) = state.idle.pop_front() {
            return TakenAggregate::ForCommand(idle);
        }
        let number = state.begun;
        state.begun += 1;
        let id = format!("{}-{number}", self.workload.prefix);
        TakenAggregate::ForCommand(PooledAggregate { script: self.workload.script(number), id, accepted: None })
    }

    pub(super) fn put_back(&self, aggregate: PooledAggregate<'a>) {
        self.state().idle.push_back(aggregate);
    }

    /// Puts an aggregate back after its next command, unless that was its last, or was not accepted.
    pub(super) fn after_command(&self, aggregate: PooledAggregate<'a>, accepted: bool) {
        let done = aggregate.accepted.map_or(0, |commands| commands + 1);
        let is_deleted = done.checked_sub(1).is_some_and(|step| aggregate.script.commands[step].deletes);
        match (accepted, done < aggregate.script.commands.len()) {
            (true, true) => self.put_back(PooledAggregate { accepted: Some(done), ..aggregate }),
            (true, false) if !is_deleted => self.state().finished = Some(aggregate.path()),
            (true, false) | (false, _) => {}
        }
    }

    fn state(&self) -> MutexGuard<'_, PoolState<'a>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PooledAggregate<'_> {
    pub(super) fn path(&self) -> String {
        self.script.path(&self.id)
    }
}
