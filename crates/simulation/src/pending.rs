//! What the reactor has to do for an aggregate: deadlines, dispatches, and events that are input of processes.

use std::collections::BTreeMap;

use daybook_decider::{AggregateKey, Caller, CommandRequest, DeclaredDeadline, Due, Input};
use jiff::Timestamp;

use crate::request::{Cause, Request, Row};

#[derive(Default)]
pub(crate) struct Pending {
    /// By name.
    deadlines: BTreeMap<String, (Timestamp, Request)>,
    /// In the order in which they are sent, each after the answer to the one before.
    dispatches: Vec<Request>,
    /// In the order of the events, by the type of the process.
    inputs: BTreeMap<&'static str, Vec<Request>>,
}

impl Pending {
    /// The requests that can be sent at this time.
    pub(crate) fn due(&self, now: Timestamp) -> impl Iterator<Item = &Request> {
        let deadlines = self.deadlines.values().filter(move |(due, _)| *due <= now).map(|(_, request)| request);
        let inputs = self.inputs.values().filter_map(|inputs| inputs.first());
        deadlines.chain(self.dispatches.first()).chain(inputs)
    }

    /// Whether the dispatch is there.
    pub(crate) fn dispatches(&self, cause: &Cause) -> bool {
        self.dispatches.iter().any(|request| request.cause.as_ref() == Some(cause))
    }

    /// The times of the deadlines.
    pub(crate) fn times(&self) -> impl Iterator<Item = Timestamp> {
        self.deadlines.values().map(|(due, _)| *due)
    }

    /// Adds an event that is input of a process.
    pub(crate) fn add(&mut self, process: &'static str, of: &AggregateKey, seq: u64, input: Input) {
        let commands = input.commands.into_iter().map(|command| (input.process.clone(), command)).collect();
        let cause = Cause { of: of.clone(), row: Row::Input(process, seq) };
        self.inputs.entry(process).or_default().push(Request::of_row(commands, cause));
    }

    /// Applies a decision: `declared` are those of the state after it, which has this version, and `set` those that are new.
    pub(crate) fn declare(
        &mut self,
        (of, version): (&AggregateKey, u64),
        declared: Vec<DeclaredDeadline>,
        set: &[(String, Due)],
    ) {
        let before = std::mem::take(self);
        self.inputs = before.inputs;
        let mut added = Vec::new();
        for DeclaredDeadline { name, due, to, command } in declared {
            let is_set = set.iter().any(|(set, _)| *set == name);
            let request = |to, row| Request::of_row(vec![(to, command)], Cause { of: of.clone(), row });
            match due {
                Some(due) if is_set || before.deadlines.contains_key(&name) => {
                    let request = request(of.clone(), Row::Deadline(name.clone(), due));
                    self.deadlines.insert(name, (due, request));
                }
                None if is_set => added.extend(to.map(|to| request(to, Row::Dispatch(name, version)))),
                Some(_) => {}
                // The command stays that of the state which has set it.
                None => {
                    let is_it = |old: &&Request| matches!(old.row(), Some(Row::Dispatch(old, _)) if *old == name);
                    self.dispatches.extend(before.dispatches.iter().find(is_it).cloned());
                }
            }
        }
        let since = |request: &Request| match request.row() {
            Some(Row::Dispatch(_, seq)) => *seq,
            _ => 0,
        };
        self.dispatches.sort_by_key(since);
        self.dispatches.extend(added);
    }

    /// Removes what caused a request that is answered.
    pub(crate) fn done(&mut self, cause: &Cause) {
        let is_other = |request: &Request| request.cause.as_ref() != Some(cause);
        self.deadlines.retain(|_, (_, request)| is_other(request));
        self.dispatches.retain(is_other);
        self.inputs.values_mut().for_each(|inputs| inputs.retain(is_other));
    }
}

impl Request {
    /// A request of the system.
    pub(crate) fn of_row(commands: Vec<(AggregateKey, CommandRequest)>, cause: Cause) -> Self {
        Self { commands, caller: Caller::system(), has_key: true, cause: Some(cause) }
    }

    fn row(&self) -> Option<&Row> {
        self.cause.as_ref().map(|cause| &cause.row)
    }
}
