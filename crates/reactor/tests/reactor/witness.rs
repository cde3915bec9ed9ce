//! A process that follows postboxes, as errands do, and to which no note is input.

use daybook_decider::{
    Access, Aggregate, Authorization, Caller, Commands, Context, Decision, EventType, FollowedEvent, Reacts, Sources,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::errand::{Postbox, PostboxEvent};

pub(crate) struct Witness;

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct State {}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
pub(crate) enum Command {
    Begin {},
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
pub(crate) enum Event {
    Called {},
}

impl Aggregate for Witness {
    const TYPE: &'static str = "witness";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "Begin", update: None, delete: None };
    const EVENTS: &'static [EventType] = &[EventType::new("Called", 1)];

    type State = State;
    type Command = Command;
    type Event = Event;

    fn sources() -> Sources<Self> {
        Sources::of::<Postbox>()
    }

    fn decide(_: &State, Command::Begin {}: Command, _: &Context<'_, Event>) -> Decision<Event> {
        Ok(vec![Event::Called {}])
    }

    fn evolve(state: State, Event::Called {}: &Event) -> State {
        state
    }

    fn authorize(_: &Caller, _: Access<'_, Command>, _: Option<&str>, _: Option<&State>) -> Authorization {
        true.into()
    }
}

impl Reacts<Postbox> for Witness {
    fn input(_: &FollowedEvent<'_, PostboxEvent>) -> Option<(String, Command)> {
        None
    }
}
