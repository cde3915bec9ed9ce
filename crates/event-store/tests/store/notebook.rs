//! An aggregate for what those that ship cannot show: a state as large as one likes, several events a command, as many
//! messages an event as one likes, a history, and other versions of its state.

use daybook_decider::{Aggregate, Commands, Context, Decision, EventType, Message};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A notebook whose state has the meaning `STATE_VERSION`, and whose rules want all its events if `FULL_HISTORY`.
pub(crate) struct Notebook<const STATE_VERSION: u32 = 1, const FULL_HISTORY: bool = false>;

/// Its lines.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct State {
    pub(crate) lines: Vec<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(tag = "command", content = "data", deny_unknown_fields)]
pub(crate) enum Command {
    Start { lines: Vec<String> },
    Write { lines: Vec<String> },
    Count {},
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", content = "data")]
pub(crate) enum Event {
    LineWritten { text: String },
}

impl<const STATE_VERSION: u32, const FULL_HISTORY: bool> Aggregate for Notebook<STATE_VERSION, FULL_HISTORY> {
    const TYPE: &'static str = "notebook";
    const STATE_VERSION: u32 = STATE_VERSION;
    const COMMANDS: Commands = Commands { create: "Start", update: Some("Write"), delete: None };
    const EVENTS: &'static [EventType] = &[EventType::new("LineWritten", 1)];
    const FULL_HISTORY: bool = FULL_HISTORY;

    type State = State;
    type Command = Command;
    type Event = Event;

    /// An event a line; `Count` writes down how many events its history has.
    fn decide(_: &State, command: Command, context: &Context<'_, Event>) -> Decision<Event> {
        let lines = match command {
            Command::Start { lines } | Command::Write { lines } => lines,
            Command::Count {} => vec![context.history().len().to_string()],
        };
        Ok(lines.into_iter().map(|text| Event::LineWritten { text }).collect())
    }

    fn evolve(mut state: State, Event::LineWritten { text }: &Event) -> State {
        state.lines.push(text.clone());
        state
    }

    /// A message for each exclamation mark that the line begins with.
    fn announce(_: &State, Event::LineWritten { text }: &Event, _: &State) -> Vec<Message> {
        let marks = text.bytes().take_while(|&byte| byte == b'!').count();
        (0..marks).map(|mark| Message::new("LineShouted", &mark)).collect()
    }
}
