//! Processes: aggregates whose input is events of other aggregates, and that dispatch commands to them. Here are the types;
//! `reacts` fills them in.

use std::marker::PhantomData;

use serde::{Deserialize, Serialize};

use crate::aggregate_key::AggregateKey;
use crate::deadline::Declaration;
use crate::folded::CommandRequest;
use crate::record::RecordedEvent;
use crate::unreadable::UnreadableEvent;

/// The aggregate types whose events are input of the process `P`: `Sources::of::<Order>().and::<Payment>()`.
pub struct Sources<P> {
    pub(crate) all: Vec<Source>,
    process: PhantomData<fn() -> P>,
}

impl<P> Sources<P> {
    /// None: an aggregate that is no process.
    pub fn none() -> Self {
        Self { all: Vec::new(), process: PhantomData }
    }
}

/// An aggregate type whose events are input of a process, with the Rust types erased.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    pub(crate) aggregate_type: &'static str,
    pub(crate) rust_type: &'static str,
    pub(crate) input: fn(&str, &RecordedEvent) -> Result<Option<Input>, UnreadableEvent>,
    pub(crate) answered: fn(&str, &CommandRequest, Option<&CommandRejection>) -> Answered,
}

/// The command that a process gets for an answer, or why its code fails.
pub(crate) type Answered = Result<Option<CommandRequest>, String>;

impl Source {
    /// The input that a stored event of this aggregate is for the process; `None` if it is none. Fails if the event cannot be
    /// read, or the code of the process fails on it.
    pub fn input(&self, aggregate_id: &str, event: &RecordedEvent) -> Result<Option<Input>, UnreadableEvent> {
        (self.input)(aggregate_id, event)
    }

    /// The command that the process gets for the answer to a command that it has dispatched to this aggregate, accepted or
    /// rejected; `None` if it gets none. The error says why the code of the process fails on it.
    pub fn answered(
        &self,
        aggregate_id: &str,
        command: &CommandRequest,
        rejection: Option<&CommandRejection>,
    ) -> Result<Option<CommandRequest>, String> {
        (self.answered)(aggregate_id, command, rejection)
    }
}

/// What a process gets for an event of another aggregate.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// The process.
    pub process: AggregateKey,
    /// Its commands: one, unless the stored event is read as several.
    pub commands: Vec<CommandRequest>,
}

/// A command to another aggregate, while [`Aggregate::dispatches`](crate::Aggregate::dispatches) returns it.
#[derive(Clone, Debug)]
pub struct Dispatch(pub(crate) Declaration);

/// The answer of an aggregate to a command that a process has dispatched to it. `C` are the commands of the aggregate.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a, C> {
    /// The id of the aggregate.
    pub aggregate_id: &'a str,
    /// The command.
    pub command: &'a C,
    /// The rejection; `None` if the command was accepted.
    pub rejection: Option<&'a CommandRejection>,
}

/// A rejection of a dispatched command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandRejection {
    /// The name of the aggregate's rejection. `Missing`, `Exists` and `Deleted` are those of a command that the aggregate cannot
    /// get in its state, `ClaimTaken` that of one that takes a claim of another aggregate.
    pub name: String,
    /// The explanation.
    pub detail: String,
}
