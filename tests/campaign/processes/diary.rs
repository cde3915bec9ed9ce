//! Diaries, which are processes too: they follow post boxes, as errands do, and errands, which are processes themselves.

use daybook_decider::{
    Access, Aggregate, Authorization, Caller, Commands, Context, Decision, EventType, FollowedEvent, Message, Reacts,
    Sources,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::errand::{self, Errand, Origin, Postbox, PostboxEvent};

/// The diary of an errand, with each note for it and each of its events.
pub(crate) struct Diary<const REPAIRED: bool>;

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct State {}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
pub(crate) enum Command {
    Begin { from: Origin },
    Write { from: Origin },
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
pub(crate) enum Event {
    Written { from: Origin },
}

impl<const REPAIRED: bool> Aggregate for Diary<REPAIRED> {
    const TYPE: &'static str = "diary";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "Begin", update: None, delete: None };
    const EVENTS: &'static [EventType] = &[EventType::new("Written", 1)];

    type State = State;
    type Command = Command;
    type Event = Event;

    fn sources() -> Sources<Self> {
        Sources::of::<Postbox<REPAIRED>>().and::<Errand<REPAIRED>>()
    }

    fn decide(_: &State, command: Command, _: &Context<'_, Event>) -> Decision<Event> {
        let (Command::Begin { from } | Command::Write { from }) = command;
        Ok(vec![Event::Written { from }])
    }

    fn evolve(state: State, _: &Event) -> State {
        state
    }

    fn announce(_: &State, _: &Event, _: &State) -> Vec<Message> {
        vec![]
    }

    fn authorize(caller: &Caller, access: Access<'_, Command>, _: Option<&str>, _: Option<&State>) -> Authorization {
        (!matches!(access, Access::Command(_)) || caller.is_system()).into()
    }
}

impl<const REPAIRED: bool> Reacts<Postbox<REPAIRED>> for Diary<REPAIRED> {
    fn input(event: &FollowedEvent<'_, PostboxEvent>) -> Option<(String, Command)> {
        let PostboxEvent::Posted { errand, note } = event.event else { return None };
        let from = (event.aggregate_id.to_owned(), event.seq_num);
        let begins = note.kind == "begin";
        Some((errand.clone(), if begins { Command::Begin { from } } else { Command::Write { from } }))
    }
}

impl<const REPAIRED: bool> Reacts<Errand<REPAIRED>> for Diary<REPAIRED> {
    fn input(event: &FollowedEvent<'_, errand::Event>) -> Option<(String, Command)> {
        let id = event.aggregate_id.to_owned();
        Some((id.clone(), Command::Write { from: (id, event.seq_num) }))
    }
}
