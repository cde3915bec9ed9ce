//! A request: what a client or a consumer sends.

use std::fmt;

use daybook_decider::{Aggregate, AggregateKey, Caller, CommandRequest};
use jiff::Timestamp;
use serde::Serialize;

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

/// The row of an aggregate that causes a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cause {
    pub(crate) of: AggregateKey,
    pub(crate) row: Row,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Row {
    /// Its name and time.
    Deadline(String, Timestamp),
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
            Row::Deadline(name, _) => write!(f, "the deadline {name} of {of}"),
            Row::Dispatch(name, seq) => write!(f, "the dispatch {name} of {of} since event {seq}"),
            Row::Answer(name, seq) => write!(f, "the answer to {name} of {of} since event {seq}"),
            Row::Input(process, seq) => write!(f, "event {seq} of {of}, input of a {process},"),
        }
    }
}
