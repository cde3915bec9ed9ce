//! The functions of a process, with their types: how it [`Reacts`] to other aggregates, and which commands it dispatches.

use std::any::type_name;
use std::borrow::Cow;

use serde::Serialize;

use crate::aggregate::Aggregate;
use crate::deadline::Declaration;
use crate::folded::CommandRequest;
use crate::involve::sent_command;
use crate::involved::SentCommand;
use crate::json::tagged;
use crate::panics::{calling, catch};
use crate::process::{Answer, Answered, CommandRejection, Dispatch, Input, Source, Sources};
use crate::reading::read_stored;
use crate::record::{FollowedEvent, RecordedEvent};
use crate::unreadable::{UnreadableEvent, UnreadableKind, panicked_on, unreadable};

/// How a process reacts to the aggregates of one type: to their events, and to their answers to commands that it has dispatched.
///
/// What it gets is a command of its own, which its [`decide`](Aggregate::decide) turns into events, or rejects. It gets each
/// event once, in the order of the aggregate, and each answer once. Pure, like everything of an aggregate.
pub trait Reacts<A: Aggregate>: Aggregate<Command: Serialize> {
    /// The id of the process that an event is input of, and the command that it gets; `None` if the event is input of none. The
    /// create command begins the process. Another command for a process that does not exist, or that was deleted, is skipped.
    ///
    /// After the first deployment of a process, it also gets the earlier events of an aggregate that changes:
    /// [`occurred_at`](FollowedEvent::occurred_at) distinguishes them.
    fn input(event: &FollowedEvent<'_, A::Event>) -> Option<(String, Self::Command)>;

    /// The command that the process gets for an answer; `None`, as by default, if it gets none. Most processes follow the events
    /// of the aggregate instead, and use only rejections.
    fn answered(_answer: &Answer<'_, A::Command>) -> Option<Self::Command> {
        None
    }
}

impl<P: Aggregate> Sources<P> {
    /// The aggregates of type `A`.
    pub fn of<A: Aggregate>() -> Self
    where
        P: Reacts<A>,
    {
        Self::none().and::<A>()
    }

    /// These, and the aggregates of type `A`.
    #[must_use]
    pub fn and<A: Aggregate>(mut self) -> Self
    where
        P: Reacts<A>,
    {
        let (input, answered) = (input::<P, A>, answered::<P, A>);
        self.all.push(Source { aggregate_type: A::TYPE, rust_type: type_name::<A>(), input, answered });
        self
    }
}

impl Dispatch {
    /// The command to an aggregate of type `A`, under a name like that of a [`Deadline`](crate::Deadline). Only the name is
    /// stored: the command is that of the first state that declares it. To send another one, change the name, such as to
    /// `charge-2`.
    pub fn new<A: Aggregate>(name: impl Into<Cow<'static, str>>, id: impl Into<String>, command: &A::Command) -> Self
    where
        A::Command: Serialize,
    {
        let name = name.into();
        let command = sent_command::<A>(id.into(), command).map(|sent| (Some(sent.to), sent.command));
        let command = command.map_err(|reason| format!("the command of {name}: {reason}"));
        Self(Declaration { name, due: None, command })
    }
}

/// Reads a stored event of an aggregate of type `A` as input of a process of type `P`.
fn input<P: Reacts<A>, A: Aggregate>(
    aggregate_id: &str,
    recorded: &RecordedEvent,
) -> Result<Option<Input>, UnreadableEvent> {
    let RecordedEvent { seq_num, occurred_at, ref meta, .. } = *recorded;
    let events = read_stored::<A>(aggregate_id, recorded)?;
    let inputs = catch(P::TYPE, || {
        let input = |event| {
            let event = FollowedEvent { aggregate_id, seq_num, occurred_at, meta, event };
            calling("input", || P::input(&event)).map(|(process, command)| sent_command::<P>(process, &command))
        };
        events.iter().filter_map(input).collect::<Result<Vec<_>, _>>()
    });
    let wrong = |reason| unreadable(recorded, UnreadableKind::Panicked, reason);
    let inputs = inputs.map_err(panicked_on(recorded))?.map_err(wrong)?;
    let Some(SentCommand { to: process, .. }) = inputs.first().cloned() else { return Ok(None) };
    if inputs.iter().any(|input| input.to != process) {
        return Err(wrong(format!(
            "it is read as several events, which are input of several processes of {}",
            P::TYPE
        )));
    }
    Ok(Some(Input { process, commands: inputs.into_iter().map(|input| input.command).collect() }))
}

/// The command that a process of type `P` gets for the answer of an aggregate of type `A`.
fn answered<P: Reacts<A>, A: Aggregate>(
    aggregate_id: &str,
    dispatched: &CommandRequest,
    rejection: Option<&CommandRejection>,
) -> Answered {
    let command = catch(A::TYPE, || tagged::join_command(&dispatched.command, &dispatched.data));
    let command = &command.map_err(|panic| panic.to_string())??;
    let answered = catch(P::TYPE, || {
        let command = calling("answered", || P::answered(&Answer { aggregate_id, command, rejection }));
        command.map(|command| CommandRequest::of(&command)).transpose()
    });
    answered.map_err(|panic| panic.to_string())?.map_err(|error| format!("a command of {}: {error}", P::TYPE))
}
