//! An aggregate that records whatever JSON a command contains.

use daybook_decider::{Aggregate, Commands, Context, Decision, EventType};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub(crate) struct Sheet;

#[derive(Clone, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct State {
    notes: u64,
}

#[derive(Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
pub(crate) enum Command {
    Begin {},
    /// One event and one message with this value.
    Note {
        value: Value,
    },
    /// No event.
    Read {},
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
pub(crate) enum Event {
    SheetBegun {},
    SheetNoted { value: Value },
}

impl Aggregate for Sheet {
    const TYPE: &'static str = "sheet";
    const STATE_VERSION: u32 = 1;
    const COMMANDS: Commands = Commands { create: "Begin", update: None, delete: None };
    const EVENTS: &'static [EventType] = &[EventType::new("SheetBegun", 1), EventType::new("SheetNoted", 1)];

    type State = State;
    type Command = Command;
    type Event = Event;

    fn decide(_: &State, command: Command, _: &Context<'_, Event>) -> Decision<Event> {
        Ok(match command {
            Command::Begin {} => vec![Event::SheetBegun {}],
            Command::Note { value } => vec![Event::SheetNoted { value }],
            Command::Read {} => vec![],
        })
    }

    fn evolve(state: State, _: &Event) -> State {
        State { notes: state.notes + 1 }
    }
}
