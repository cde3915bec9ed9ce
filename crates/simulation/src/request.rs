//! The requests: those of clients and consumers, and those that the reactor sends for the rows of an aggregate, its deadlines,
//! dispatches, and events that are input of processes.

use std::collections::BTreeMap;
use std::fmt;

use daybook_decider::{Aggregate, AggregateKey, Caller, CommandRequest, DeclaredDeadline, Due, Input};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

/// A request to the API: a command, or several that are executed together or not at all.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    pub(crate) commands: Vec<(AggregateKey, CommandRequest)>,
    pub(crate) caller: Caller,
    pub(crate) has_key: bool,
    /// What it comes from, if the system sends it.
    pub(crate) cause: Option<Cause>,
}

impl Request {
    /// A command to the aggregate of type `A` with this id. Panics if the command has no JSON form.
    #[track_caller]
    pub fn to<A: Aggregate<Command: Serialize>>(id: impl Into<String>, command: &A::Command) -> Self {
        let (commands, caller) = (Vec::new(), Caller::anonymous());
        Self { commands, caller, has_key: true, cause: None }.and::<A>(id, command)
    }

    /// Adds a command, also to another aggregate. Panics if the command has no JSON form.
    #[track_caller]
    #[must_use]
    pub fn and<A: Aggregate<Command: Serialize>>(mut self, id: impl Into<String>, command: &A::Command) -> Self {
        let read = serde_json::to_string(command).and_then(|text| serde_json::from_str(&text));
        let command = read.unwrap_or_else(|error| panic!("a command to {} has no JSON form: {error}", A::TYPE));
        self.commands.push((AggregateKey::new(A::TYPE, id), command));
        self
    }

    /// Sets the caller, who is anonymous otherwise.
    #[must_use]
    pub fn by(self, caller: Caller) -> Self {
        Self { caller, ..self }
    }

    /// Sends the request without an `Idempotency-Key`: if its answer is lost, it is executed again.
    #[must_use]
    pub fn without_key(self) -> Self {
        Self { has_key: false, ..self }
    }

    /// Whether it is a repetition of this one. The system repeats what it sends, whatever has been forgotten since.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let values = |request: &Self| -> Vec<_> {
            let commands = request.commands.iter();
            // As values: the members of a map can have any order.
            commands
                .map(|(to, command)| (to.clone(), command.command.clone(), command.data.read::<Value>().ok()))
                .collect()
        };
        self.cause.is_some() || values(self) == values(other)
    }

    /// A request that the system sends because of a row, such as a due deadline.
    pub(crate) fn of_row(commands: Vec<(AggregateKey, CommandRequest)>, cause: Cause) -> Self {
        Self { commands, caller: Caller::system(), has_key: true, cause: Some(cause) }
    }

    pub(crate) fn is_of_deadline(&self) -> bool {
        matches!(self.row(), Some(Row::Deadline(..)))
    }

    fn row(&self) -> Option<&Row> {
        self.cause.as_ref().map(|cause| &cause.row)
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (to, command)) in self.commands.iter().enumerate() {
            let before = if index == 0 { "" } else { " and " };
            write!(f, "{before}{} {} to {to}", command.command, command.data.text())?;
        }
        self.caller.actor().map_or(Ok(()), |actor| write!(f, " as {actor}"))
    }
}

/// What an event of an aggregate is for the processes of a type.
pub(crate) type InputOf = (&'static str, u64, Input);

/// The row of an aggregate that causes a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cause {
    pub(crate) of: AggregateKey,
    pub(crate) row: Row,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Row {
    /// Its name and time, and the number of the event that set it.
    Deadline(String, Timestamp, u64),
    /// Its name, and the number of the event that set it.
    Dispatch(String, u64),
    /// The answer to this dispatch, which has no row of its own.
    Answer(String, u64),
    /// An event of this number is input of processes of this type.
    Input(&'static str, u64),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = &self.of;
        match &self.row {
            Row::Deadline(name, ..) => write!(f, "the deadline {name} of {of}"),
            Row::Dispatch(name, seq) => write!(f, "the dispatch {name} of {of} since event {seq}"),
            Row::Answer(name, seq) => write!(f, "the answer to {name} of {of} since event {seq}"),
            Row::Input(process, seq) => write!(f, "event {seq} of {of}, input of a {process},"),
        }
    }
}

/// What the reactor has to do for an aggregate.
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

    pub(crate) fn dispatches(&self, cause: &Cause) -> bool {
        self.dispatches.iter().any(|request| request.cause.as_ref() == Some(cause))
    }

    pub(crate) fn times(&self) -> impl Iterator<Item = Timestamp> {
        self.deadlines.values().map(|(due, _)| *due)
    }

    pub(crate) fn add(&mut self, process: &'static str, of: &AggregateKey, seq: u64, input: Input) {
        let commands = input.commands.into_iter().map(|command| (input.process.clone(), command)).collect();
        let cause = Cause { of: of.clone(), row: Row::Input(process, seq) };
        self.inputs.entry(process).or_default().push(Request::of_row(commands, cause));
    }

    /// Whether the event of this number is input of processes, or of those of one type `only`.
    pub(crate) fn has_input(&self, seq: u64, only: Option<&str>) -> bool {
        let is_it = |request: &Request| matches!(request.row(), Some(Row::Input(_, number)) if *number == seq);
        let inputs = self.inputs.iter().filter(|(process, _)| only.is_none_or(|only| only == **process));
        inputs.flat_map(|(_, inputs)| inputs).any(is_it)
    }

    /// Replaces the inputs that are pending by what they are now.
    pub(crate) fn renew(&mut self, of: &AggregateKey, inputs: Vec<InputOf>) {
        let before = Self { inputs: std::mem::take(&mut self.inputs), ..Self::default() };
        for (process, seq, input) in
            inputs.into_iter().filter(|(process, seq, _)| before.has_input(*seq, Some(process)))
        {
            self.add(process, of, seq, input);
        }
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
        let since = |request: &Request| match request.row() {
            Some(Row::Deadline(.., seq) | Row::Dispatch(_, seq)) => *seq,
            _ => 0,
        };
        for DeclaredDeadline { name, due, to, command } in declared {
            let is_set = set.iter().any(|(set, _)| *set == name);
            let request = |to, row| Request::of_row(vec![(to, command)], Cause { of: of.clone(), row });
            match due {
                Some(due) => {
                    let seq = before.deadlines.get(&name).map(|(_, request)| since(request));
                    if let Some(seq) = is_set.then_some(version).or(seq) {
                        let request = request(of.clone(), Row::Deadline(name.clone(), due, seq));
                        self.deadlines.insert(name, (due, request));
                    }
                }
                None if is_set => added.extend(to.map(|to| request(to, Row::Dispatch(name, version)))),
                // The command stays that of the state which has set it.
                None => {
                    let is_it = |old: &&Request| matches!(old.row(), Some(Row::Dispatch(old, _)) if *old == name);
                    self.dispatches.extend(before.dispatches.iter().find(is_it).cloned());
                }
            }
        }
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
